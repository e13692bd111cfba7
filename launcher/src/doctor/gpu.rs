//! GPUs, and what ranks need to use them.

use super::finding::Finding;

#[cfg(feature = "gpu")]
pub(super) fn findings() -> Vec<Finding> {
    use std::fs;

    use super::finding::{good, limited};
    use spmd_gpu::{Found, GpuError};

    let here = spmd_gpu::probe();
    let found = |what, found: Result<Found, GpuError>, more: String| match found {
        Ok(Found { version: (major, minor), path, .. }) => {
            good(what, format!("{major}.{minor} ({path}){more}"))
        }
        Err(error) => limited(what, error.to_string()),
    };
    let has_driver = here.driver.is_ok();
    // CUDA's version is that of its interface; the driver has another one.
    let module = fs::read_to_string("/sys/module/nvidia/version").ok();
    let module = module.map(|text| format!(", of NVIDIA's driver {}", text.trim()));
    let mut findings = vec![
        found("CUDA driver", here.driver, module.unwrap_or_default()),
        found("NVRTC", here.nvrtc, String::new()),
        found("NCCL", here.nccl, String::new()),
    ];
    if has_driver && here.devices.is_empty() {
        findings.push(limited("GPU", GpuError::NoDevice { ordinal: 0, count: 0 }.to_string()));
    }
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
