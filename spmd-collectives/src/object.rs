//! Values of any `serde` type, always through serialisation (`postcard`).

mod codec;
mod fold;

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::internal::{Blocks, Call, Form, Kind, Memory, dispatch};
use spmd_core::{Comm, DType, Element, Error, Result, Source, Status, TagOrAny};

use crate::allgather::allgather_unknown;
use crate::alltoall::alltoall_unknown;
use crate::blocks::room_for;
use crate::broadcast;
use crate::gather::gather_unknown;
use crate::scatter::scatter_unknown;
use crate::sealed::Sealed;
use codec::{decode, decode_all, encode, encode_all};

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
    /// Errors: as [`Broadcast::broadcast_value`](crate::Broadcast::broadcast_value); serialisation.
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
    /// Errors: as [`Gather::gatherv_vec`](crate::Gather::gatherv_vec); serialisation.
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
    /// Errors: as [`Allgather::allgatherv_vec`](crate::Allgather::allgatherv_vec); serialisation.
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
    /// Errors: as [`Scatter::scatterv_vec`](crate::Scatter::scatterv_vec); the root gave `None`, or another number of
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
    /// Errors: as [`Alltoall::alltoallv_vec`](crate::Alltoall::alltoallv_vec); there is another number of values than of
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

    /// Folds a value of each rank by `op`, which gets what lower ranks have given on its left; the
    /// root gets the result, the others `None`. All ranks call it, with the same root and an `op` that
    /// does the same: associative, but not necessarily commutative. It must not communicate.
    ///
    /// The fold is in the canonical order of [`op`](spmd_core::op): the same bits wherever the ranks
    /// are. Values go up a binomial tree, ⌈log₂ size⌉ steps; a rank holds two at a time.
    ///
    /// Errors: `root` out of range; serialisation; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use std::collections::BTreeMap;
    ///
    /// let texts = ["to be or", "not to be"];
    /// let counts = spmd(2, |ctx| {
    ///     let mut words = BTreeMap::new();
    ///     for word in texts[ctx.rank()].split(' ') {
    ///         *words.entry(word.to_string()).or_insert(0) += 1;
    ///     }
    ///     ctx.reduce_object(words, 0, |mut left, right| {
    ///         right.into_iter().for_each(|(word, n)| *left.entry(word).or_insert(0) += n);
    ///         left
    ///     })
    /// })?;
    /// assert_eq!(counts[0].as_ref().expect("the root")["be"], 2);
    /// assert_eq!(counts[1], None);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_object<T>(&self, value: T, root: usize, op: impl Fn(T, T) -> T) -> Result<Option<T>>
    where
        T: Serialize + DeserializeOwned;

    /// [`Objects::reduce_object`] whose result every rank gets: down the tree after it was folded.
    ///
    /// Errors: as [`Objects::reduce_object`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let longest = spmd(3, |ctx| {
    ///     let name = "abc"[..=ctx.rank()].to_string();
    ///     ctx.allreduce_object(name, |a, b| if b.len() > a.len() { b } else { a })
    /// })?;
    /// assert_eq!(longest, ["abc"; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allreduce_object<T>(&self, value: T, op: impl Fn(T, T) -> T) -> Result<T>
    where
        T: Serialize + DeserializeOwned;

    /// Has rank 0 do something, and gives everybody what it gives: once for all ranks, wherever they
    /// are. All ranks call it. `f` must not communicate with others of them, who wait for it.
    ///
    /// Errors: what `f` gives, on rank 0 as it is, elsewhere in its words; as
    /// [`Objects::broadcast_object`].
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let runs = AtomicU32::new(0);
    /// let settings = spmd(4, |ctx| {
    ///     ctx.once(|| {
    ///         runs.fetch_add(1, Ordering::Relaxed);
    ///         Ok(String::from("what the file says"))
    ///     })
    /// })?;
    /// assert_eq!(settings, ["what the file says"; 4]);
    /// assert_eq!(runs.into_inner(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn once<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T>
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
        let bytes = match self.rank() == root {
            true => encode(&call, value.ok_or_else(|| no_value(&call))?)?,
            false => Vec::new(),
        };
        decode(&call, &broadcast_bytes(self, &call, bytes, root)?)
    }

    fn gather_object<T>(&self, value: &T, root: usize) -> Result<Option<Vec<T>>>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::GatherObject, Location::caller()).root(root);
        let bytes = encode(&call, value)?;
        let all = gather_unknown(self, &call, &bytes, root, Vec::new())?;
        all.map(|all| decode_all(&call, &all)).transpose()
    }

    fn allgather_object<T>(&self, value: &T) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::AllgatherObject, Location::caller());
        let bytes = encode(&call, value)?;
        decode_all(&call, &allgather_unknown(self, &call, &bytes, Vec::new())?)
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
        decode_all(&call, &alltoall_unknown(self, &call, &bytes, &counts, Vec::new())?)
    }

    fn reduce_object<T>(&self, value: T, root: usize, op: impl Fn(T, T) -> T) -> Result<Option<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::ReduceObject, Location::caller()).root(root);
        self.internals().check_root(&call)?;
        fold::to(self, &call, value, root, op)
    }

    fn allreduce_object<T>(&self, value: T, op: impl Fn(T, T) -> T) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::AllreduceObject, Location::caller());
        let result = fold::to(self, &call, value, 0, op)?;
        let bytes = result.as_ref().map_or(Ok(Vec::new()), |result| encode(&call, result))?;
        let bytes = broadcast_bytes(self, &call, bytes, 0)?;
        result.map_or_else(|| decode(&call, &bytes), Ok)
    }

    fn once<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let object = DType::object::<T>();
        let call = object_call(&object, Kind::Once, Location::caller());
        let done = (self.rank() == 0).then(f);
        let said = done.as_ref().map(|done| done.as_ref().map_err(ToString::to_string));
        let bytes = said.map_or(Ok(Vec::new()), |said| encode(&call, &said))?;
        let bytes = broadcast_bytes(self, &call, bytes, 0)?;
        match done {
            Some(done) => done,
            None => decode::<Result<T, String>>(&call, &bytes)?
                .map_err(|why| Error::from(format!("{call}: rank 0 of the communicator: {why}"))),
        }
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

/// Gives everybody the root's bytes.
fn broadcast_bytes(
    comm: &Comm,
    call: &Call<'_>,
    mut bytes: Vec<u8>,
    root: usize,
) -> Result<Vec<u8>> {
    let mut len = bytes.len();
    let args = broadcast::args(&usize::DTYPE, root, host((&raw mut len).cast(), 1));
    // SAFETY: the number is one element, and is held here.
    unsafe { dispatch(comm, call, &args)? };
    if comm.rank() != root {
        bytes = room_for(call, len)?;
    }
    // SAFETY: the vector has room for the bytes, on the root holds them, and after a
    // broadcast without an error does everywhere.
    unsafe {
        let args = broadcast::args(&u8::DTYPE, root, host(bytes.as_mut_ptr(), len));
        dispatch(comm, call, &args)?;
        bytes.set_len(len);
    }
    Ok(bytes)
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
