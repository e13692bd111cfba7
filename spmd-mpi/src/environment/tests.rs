use super::*;

/// An environment of these variables.
fn variables<'a>(all: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

#[test]
fn launchers_are_known_by_what_they_set() {
    for name in RANKS {
        assert!(launched(variables(&[(name, "0")])), "{name}");
    }
    assert!(launched(variables(&[("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4")])));
}

#[test]
fn programs_in_a_batch_script_or_an_interactive_step_run_alone() {
    assert!(!launched(variables(&[])));
    assert!(!launched(variables(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")])));
    assert!(!launched(variables(&[("SLURM_STEP_ID", "1"), ("SLURM_STEP_NUM_TASKS", "1")])));
}

#[cfg(all(unix, target_pointer_width = "64"))]
#[test]
fn a_launcher_of_another_mpi_is_an_error() {
    for name in SIZES {
        let error = check_pairing(1, "MPICH 9", variables(&[(name, "4")])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("MPICH 9") && text.contains(name), "{text}");
        assert!(check_pairing(4, "MPICH 9", variables(&[(name, "4")])).is_ok());
        assert!(check_pairing(1, "MPICH 9", variables(&[(name, "1")])).is_ok());
    }
    assert!(check_pairing(1, "MPICH 9", variables(&[("SLURM_NTASKS", "4")])).is_ok());
}
