//! Values as bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::internal::Call;
use spmd_core::{Comm, Error, Result};

use crate::check;
use crate::gathered::Gathered;

pub(super) fn encode<T: Serialize + ?Sized>(call: &Call<'_>, value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| failed(call, "the value cannot be turned into bytes", &error))
}

pub(super) fn decode<T: DeserializeOwned>(call: &Call<'_>, bytes: &[u8]) -> Result<T> {
    let what = "what came is not of the type asked for, use one type on all ranks";
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(failed(call, what, &"bytes are left over")),
        Err(error) => Err(failed(call, what, &error)),
    }
}

/// The bytes of a value for each rank, and how many each has.
pub(super) fn encode_all<T: Serialize>(
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
pub(super) fn decode_all<T: DeserializeOwned>(
    call: &Call<'_>,
    values: &Gathered<u8>,
) -> Result<Vec<T>> {
    values.iter().map(|bytes| decode(call, bytes)).collect()
}

fn failed(call: &Call<'_>, what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::serialize(call, format!("{what}: {error}"))
}
