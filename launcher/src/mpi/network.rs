//! Over which network a library carries messages between hosts, as far as it can be known before
//! any is sent: by the text of its version, and by the variables that it reads.

use super::family::Family;

/// In words; none where the text does not say it. `variable` is the environment.
pub(crate) fn network(
    family: Family,
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let first = |names: &[&str]| {
        names.iter().find_map(|name| variable(name).map(|value| format!("{value} ({name})")))
    };
    match family {
        Family::Mpich => {
            let (device, modules) = device(text)?;
            let chosen = NETMODS.iter().find_map(|name| Some((variable(name)?, *name)));
            let module = chosen.as_ref().map(|(module, _)| module.as_str());
            let module = module.or(modules.first().copied())?;
            let by = match (&chosen, &modules[..]) {
                (Some((_, name)), _) => format!(" ({name})"),
                (None, [_, _, ..]) => {
                    format!(" ({} chooses among {})", NETMODS[0], modules.join(", "))
                }
                (None, _) => String::new(),
            };
            let below = match module {
                "ofi" => provider(first(&["MPIR_CVAR_OFI_USE_PROVIDER", "FI_PROVIDER"])),
                "ucx" => transports(first(&["UCX_TLS"])),
                _ => String::new(),
            };
            Some(format!("{device}:{module}{by}{below}"))
        }
        Family::Intel => {
            let fabrics = first(&["I_MPI_FABRICS"]).unwrap_or("shm:ofi".into());
            Some(match fabrics.contains("ofi") {
                true => fabrics + &provider(first(&["I_MPI_OFI_PROVIDER", "FI_PROVIDER"])),
                false => fabrics + ", which reaches no other host",
            })
        }
        Family::OpenMpi => {
            let layer =
                |name: &str| Some(format!("{name} {}", first(&[&format!("OMPI_MCA_{name}")])?));
            let layers: Vec<String> = ["pml", "mtl", "btl"].into_iter().filter_map(layer).collect();
            if layers.is_empty() {
                return Some(
                    "of Open MPI's choice (OMPI_MCA_pml, OMPI_MCA_mtl and OMPI_MCA_btl name one)"
                        .into(),
                );
            }
            let layers = layers.join(", ");
            Some(match ["ucx", "ofi"].map(|below| layers.contains(below)) {
                [true, _] => layers + &transports(first(&["UCX_TLS"])),
                [_, true] => {
                    layers + &provider(first(&["OMPI_MCA_mtl_ofi_provider_include", "FI_PROVIDER"]))
                }
                _ => layers,
            })
        }
    }
}

/// Variables that choose among the networks for which an MPICH is built.
const NETMODS: [&str; 2] = ["MPIR_CVAR_CH4_NETMOD", "MPICH_CH4_NETMOD"];

/// What MPICH is built for: `MPICH Device:       ch4:ucx ofi`, of which it takes the first.
fn device(text: &str) -> Option<(&str, Vec<&str>)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("MPICH Device:"))?;
    let (device, modules) = line.trim().split_once(':')?;
    let modules = modules.split([' ', ',']).filter(|module| !module.is_empty());
    Some((device, modules.collect()))
}

fn provider(named: Option<String>) -> String {
    match named {
        Some(named) => format!(", provider {named}"),
        None => ", a provider of libfabric's choice (FI_PROVIDER names one)".into(),
    }
}

fn transports(named: Option<String>) -> String {
    match named {
        Some(named) => format!(", transports {named}"),
        None => ", transports of UCX's choice (UCX_TLS names them)".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn what_they_would_use() {
        const MPICH: &str = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ucx ofi\nmore";
        const ONE: &str = "MPICH Version: 4.3.0\nMPICH Device:       ch4:ofi\n";
        let told: [(Family, &str, Variables<'_>, &str); 12] = [
            (
                Family::Mpich,
                MPICH,
                &[],
                "ch4:ucx (MPIR_CVAR_CH4_NETMOD chooses among ucx, ofi), transports of UCX's choice \
                 (UCX_TLS names them)",
            ),
            (
                Family::Mpich,
                MPICH,
                &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")],
                "ch4:ofi (MPIR_CVAR_CH4_NETMOD), provider tcp (FI_PROVIDER)",
            ),
            (
                Family::Mpich,
                ONE,
                &[("MPIR_CVAR_OFI_USE_PROVIDER", "cxi"), ("FI_PROVIDER", "tcp")],
                "ch4:ofi, provider cxi (MPIR_CVAR_OFI_USE_PROVIDER)",
            ),
            (
                Family::Mpich,
                ONE,
                &[],
                "ch4:ofi, a provider of libfabric's choice (FI_PROVIDER names one)",
            ),
            (Family::Mpich, "MPICH Device:    ch3:nemesis", &[], "ch3:nemesis"),
            (
                Family::Intel,
                "Intel(R) MPI Library 2021.18.1",
                &[],
                "shm:ofi, a provider of libfabric's choice (FI_PROVIDER names one)",
            ),
            (
                Family::Intel,
                "",
                &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "tcp")],
                "ofi (I_MPI_FABRICS), provider tcp (I_MPI_OFI_PROVIDER)",
            ),
            (
                Family::Intel,
                "",
                &[("I_MPI_FABRICS", "shm")],
                "shm (I_MPI_FABRICS), which reaches no other host",
            ),
            (
                Family::OpenMpi,
                "",
                &[("UCX_TLS", "tcp")],
                "of Open MPI's choice (OMPI_MCA_pml, OMPI_MCA_mtl and OMPI_MCA_btl name one)",
            ),
            (
                Family::OpenMpi,
                "",
                &[("OMPI_MCA_pml", "ucx"), ("UCX_TLS", "tcp,self")],
                "pml ucx (OMPI_MCA_pml), transports tcp,self (UCX_TLS)",
            ),
            (
                Family::OpenMpi,
                "",
                &[("OMPI_MCA_pml", "cm"), ("OMPI_MCA_mtl", "ofi"), ("FI_PROVIDER", "tcp")],
                "pml cm (OMPI_MCA_pml), mtl ofi (OMPI_MCA_mtl), provider tcp (FI_PROVIDER)",
            ),
            (Family::OpenMpi, "", &[("OMPI_MCA_btl", "self,tcp")], "btl self,tcp (OMPI_MCA_btl)"),
        ];
        for (family, text, variables, expected) in told {
            let variable = |name: &str| {
                variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.to_string())
            };
            assert_eq!(network(family, text, variable).as_deref(), Some(expected));
        }
        assert_eq!(network(Family::Mpich, "CRAY MPICH version 8.1.29", |_| None), None);
    }
}
