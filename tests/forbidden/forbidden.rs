//! What the types forbid, with the message that a user reads.
//!
//! The messages are those of the Rust version in CI; `TRYBUILD=overwrite` writes them anew.

#[test]
fn wrong_programs_do_not_compile() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
