//! Values of any `serde` type, always through serialisation (`postcard`).

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::internal::{Blocks, Call, Form, Kind, Memory, dispatch};
use spmd_core::{Comm, DType, Element, Error, Result, Source, Status, TagOrAny};

use crate::allgather::allgather_unknown;
use crate::alltoall::alltoall_unknown;
use crate::blocks::room_for;
use crate::broadcast;
use crate::check;
use crate::gather::gather_unknown;
use crate::gathered::Gathered;
use crate::scatter::scatter_unknown;
use crate::sealed::Sealed;

/// The calls for values that are no elements: strings, vectors, enums, maps, whatever `serde`
/// can write and read. All ranks use the same type.
///
/// Each call carries the type's name as the compiler writes it ([`std::any::type_name`]), and other
/// ranks' types are compared with it. References, lifetimes, `Box`, `Rc`, `Arc` and `Cow` make no
/// difference, nor whether a text, list or path is borrowed or owned: a `&str` can be received as
/// a `String`, a `[T]` as a `Vec<T>`. A type alias is the type itself; two programs of one job
/// that exchange objects declare their types in one crate. That types of one name and path differ
/// in their fields, as two builds of a program may, is not seen.
///
/// Each may give [`Error::Serialize`]: a value cannot be written, or what came cannot be read as
/// one of this type.
///
/// ```
/// use spmd::prelude::*;
///
/// let names = spmd(2, |ctx| ctx.allgather_object(&format!("rank {}", ctx.rank())))?;
/// assert_eq!(names[1], ["rank 0", "rank 1"]);
/// # Ok::<(), Error>(())
/// ```
pub trait Objects: Sealed {
    /// Gives everybody the root's value: `Some` on the root; what others give is not looked at.
    /// All ranks call it, with the same root.
    ///
    /// Errors: as [`crate::Broadcast::broadcast_value`]; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let names = spmd(3, |ctx| {
    ///     let name = String::from("mesh.vtk");
    ///     ctx.broadcast_object((ctx.rank() == 0).then_some(&name), 0)
    /// })?;
    /// assert_eq!(names, ["mesh.vtk"; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn broadcast_object<T>(&self, value: Option<&T>, root: usize) -> Result<T>
    where
        T: Serialize + DeserializeOwned;

    /// Collects a value of each rank on the root, in rank order; the others get `None`. All ranks
    /// call it, with the same root.
    ///
    /// Errors: as [`crate::Gather::gatherv_vec`]; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(2, |ctx| ctx.gather_object(&format!("rank {}", ctx.rank()), 0))?;
    /// assert_eq!(all[0], Some(vec!["rank 0".to_string(), "rank 1".to_string()]));
    /// assert_eq!(all[1], None);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gather_object<T>(&self, value: &T, root: usize) -> Result<Option<Vec<T>>>
    where
        T: Serialize + DeserializeOwned;

    /// Collects a value of each rank on every rank, in rank order. All ranks call it.
    ///
    /// Errors: as [`crate::Allgather::allgatherv_vec`]; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let all = spmd(2, |ctx| ctx.allgather_object(&vec![ctx.rank(); ctx.rank()]))?;
    /// assert_eq!(all[0], [vec![], vec![1]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_object<T>(&self, value: &T) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned;

    /// Gives rank i the i-th of the root's values: `Some` on the root, one value a rank; what
    /// others give is not looked at. All ranks call it, with the same root.
    ///
    /// Errors: as [`crate::Scatter::scatterv_vec`]; the root gave `None`, or another number of
    /// values; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let tasks = ["load".to_string(), "solve".to_string()];
    /// let mine = spmd(2, |ctx| ctx.scatter_object((ctx.rank() == 0).then_some(&tasks[..]), 0))?;
    /// assert_eq!(mine, tasks);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatter_object<T>(&self, values: Option<&[T]>, root: usize) -> Result<T>
    where
        T: Serialize + DeserializeOwned;

    /// Gives rank i the i-th of this rank's values, one for each, and gives what each rank has for
    /// this one, in rank order. All ranks call it.
    ///
    /// Errors: as [`crate::Alltoall::alltoallv_vec`]; there is another number of values than of
    /// ranks; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let letters = spmd(2, |ctx| {
    ///     let me = ctx.rank();
    ///     ctx.alltoall_object(&[format!("from {me} to 0"), format!("from {me} to 1")])
    /// })?;
    /// assert_eq!(letters[1], ["from 0 to 1", "from 1 to 1"]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall_object<T>(&self, values: &[T]) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned;

    /// Sends a value to `dest`, as [`Comm::send`] sends elements, for [`Objects::recv_object`].
    ///
    /// Errors: as [`Comm::send`]; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         ctx.send_object(&("pressure", 2.5), 1, 0)?;
    ///     } else {
    ///         let ((name, value), status) = ctx.recv_object::<(String, f64)>(0, 0)?;
    ///         assert_eq!((name.as_str(), value, status.source()), ("pressure", 2.5, 0));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn send_object<T: Serialize + ?Sized>(&self, value: &T, dest: usize, tag: u32) -> Result<()>;

    /// Receives a value that [`Objects::send_object`] has sent. The length in its [`Status`] is
    /// that of the message in bytes.
    ///
    /// Errors: as [`Comm::recv_vec`], also if the object is of another type; serialisation.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return ctx.send_object("a longer text", 1, 0);
    ///     }
    ///     let (text, _status) = ctx.recv_object::<String>(ANY, 0)?;
    ///     assert_eq!(text, "a longer text");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn recv_object<T: DeserializeOwned>(
        &self,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<(T, Status)>;
}

impl Objects for Comm {
    fn broadcast_object<T>(&self, value: Option<&T>, root: usize) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::BroadcastObject, Location::caller()).root(root);
        let mut bytes = Vec::new();
        if self.rank() == root {
            bytes = encode(&call, value.ok_or_else(|| no_value(&call))?)?;
        }
        let mut len = bytes.len();
        let args = broadcast::args(&usize::DTYPE, root, host((&raw mut len).cast(), 1));
        // SAFETY: the number is one element, and is held here.
        unsafe { dispatch(self, &call, &args)? };
        if self.rank() != root {
            bytes = room_for(&call, len)?;
        }
        // SAFETY: the vector has room for the bytes, on the root holds them, and after a
        // broadcast without an error does everywhere.
        unsafe {
            let args = broadcast::args(&u8::DTYPE, root, host(bytes.as_mut_ptr(), len));
            dispatch(self, &call, &args)?;
            bytes.set_len(len);
        }
        decode(&call, &bytes)
    }

    fn gather_object<T>(&self, value: &T, root: usize) -> Result<Option<Vec<T>>>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::GatherObject, Location::caller()).root(root);
        let bytes = encode(&call, value)?;
        let all = gather_unknown(self, &call, &bytes, root)?;
        all.map(|all| decode_all(&call, &all)).transpose()
    }

    fn allgather_object<T>(&self, value: &T) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::AllgatherObject, Location::caller());
        let bytes = encode(&call, value)?;
        decode_all(&call, &allgather_unknown(self, &call, &bytes)?)
    }

    fn scatter_object<T>(&self, values: Option<&[T]>, root: usize) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::ScatterObject, Location::caller()).root(root);
        let (mut bytes, mut counts) = (Vec::new(), Vec::new());
        if self.rank() == root {
            let values = values.ok_or_else(|| no_value(&call))?;
            (bytes, counts) = encode_all(self, &call, values)?;
        }
        decode(&call, &scatter_unknown(self, &call, &bytes, &counts, root)?)
    }

    fn alltoall_object<T>(&self, values: &[T]) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::AlltoallObject, Location::caller());
        let (bytes, counts) = encode_all(self, &call, values)?;
        decode_all(&call, &alltoall_unknown(self, &call, &bytes, &counts)?)
    }

    fn send_object<T: Serialize + ?Sized>(&self, value: &T, dest: usize, tag: u32) -> Result<()> {
        let object = DType::object::<T>();
        let call = message_call(&object, Kind::Send, Location::caller(), Some(dest), Some(tag));
        self.internals().send_bytes(&call, &encode(&call, value)?, dest, tag)
    }

    fn recv_object<T: DeserializeOwned>(
        &self,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<(T, Status)> {
        let (source, tag) = (source.source(), tag.tag());
        let object = DType::object::<T>();
        let call = message_call(&object, Kind::Recv, Location::caller(), source, tag);
        let (bytes, status) = self.internals().recv_bytes(&call, source, tag)?;
        let call = call.message(Some(status.source()), Some(status.tag()));
        Ok((decode(&call, &bytes)?, status))
    }
}

fn host(ptr: *mut u8, count: usize) -> Memory<'static> {
    Memory::host(ptr, Blocks::One(count))
}

fn object_call<'a>(object: &'a DType, kind: Kind, site: &'static Location<'static>) -> Call<'a> {
    Call::new(kind, site).data(object, Call::UNEQUAL)
}

fn message_call<'a>(
    object: &'a DType,
    kind: Kind,
    site: &'static Location<'static>,
    peer: Option<usize>,
    tag: Option<u32>,
) -> Call<'a> {
    object_call(object, kind, site).message(peer, tag).form(Form::Object)
}

fn no_value(call: &Call<'_>) -> Error {
    Error::argument(format!("{call}: the root must give a value, not None"))
}

fn encode<T: Serialize + ?Sized>(call: &Call<'_>, value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| failed(call, "the value cannot be turned into bytes", &error))
}

fn decode<T: DeserializeOwned>(call: &Call<'_>, bytes: &[u8]) -> Result<T> {
    let what = "what came is not of the type asked for, use one type on all ranks";
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(failed(call, what, &"bytes are left over")),
        Err(error) => Err(failed(call, what, &error)),
    }
}

/// The bytes of a value for each rank, and how many each has.
fn encode_all<T: Serialize>(
    comm: &Comm,
    call: &Call<'_>,
    values: &[T],
) -> Result<(Vec<u8>, Vec<usize>)> {
    check::length(call, "list of values", values.len(), comm.size())?;
    let (mut bytes, mut counts) = (Vec::new(), Vec::new());
    for value in values {
        let encoded = encode(call, value)?;
        counts.push(encoded.len());
        bytes.extend(encoded);
    }
    Ok((bytes, counts))
}

/// The values of all ranks.
fn decode_all<T: DeserializeOwned>(call: &Call<'_>, values: &Gathered<u8>) -> Result<Vec<T>> {
    values.iter().map(|bytes| decode(call, bytes)).collect()
}

fn failed(call: &Call<'_>, what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::serialize(call, format!("{what}: {error}"))
}
