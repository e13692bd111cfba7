//! GPUs, and what ranks need to use them.

use super::finding::Finding;

#[cfg(feature = "gpu")]
pub(super) fn findings() -> Vec<Finding> {
    use super::finding::{good, limited};
    use spmd_gpu::{Found, GpuError};

    let here = spmd_gpu::probe();
    let found = |what, found: Result<Found, GpuError>| match found {
        Ok(Found { version: (major, minor), path, .. }) => {
            good(what, format!("{major}.{minor} ({path})"))
        }
        Err(error) => limited(what, error.to_string()),
    };
    let libraries = [("CUDA driver", here.driver), ("NVRTC", here.nvrtc), ("NCCL", here.nccl)];
    let mut findings: Vec<_> = libraries.into_iter().map(|(name, it)| found(name, it)).collect();
    for (number, device) in here.devices.into_iter().enumerate() {
        findings.push(match device {
            Ok((name, bytes)) => good("GPU", format!("{number}: {name}, {} GiB", bytes >> 30)),
            Err(error) => limited("GPU", format!("{number}: {error}")),
        });
    }
    findings
}

#[cfg(not(feature = "gpu"))]
pub(super) fn findings() -> Vec<Finding> {
    vec![super::finding::limited("GPU", "not looked for: built without the feature gpu".into())]
}
