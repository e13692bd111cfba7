use super::*;

fn message(derived: Derived, input: TokenStream) -> String {
    expand(derived, input).expect_err("must be refused").to_string()
}

#[test]
fn refuses_what_has_no_such_operation() {
    let kind = quote!(
        #[repr(u8)]
        enum Kind {
            A,
            B,
        }
    );
    assert!(message(Derived::Sum, kind.clone()).contains("`Kind` have no sum"));
    assert!(message(Derived::Prod, kind).contains("`Kind` have no product"));
    assert!(
        message(
            Derived::Max,
            quote!(
                enum Kind {
                    A,
                    B,
                }
            )
        )
        .contains("add #[repr(u8)]")
    );
    assert!(message(Derived::Max, quote!(union Bits { a: u8 })).contains("`Bits` is a union"));
}

#[test]
fn asks_for_the_operation_on_each_generic_field() {
    let code = expand(
        Derived::Sum,
        quote!(
            struct Pair<T> {
                a: T,
                b: [T; 2],
                c: u8,
            }
        ),
    )
    .unwrap();
    let code = code.to_string();
    for ty in ["T", "[T ; 2]"] {
        assert!(
            code.contains(&format!(":: spmd :: Sum : :: spmd :: Operation < {ty} >")),
            "{code}"
        );
    }
}
