use quote::quote;

use super::*;

fn message(input: TokenStream) -> String {
    expand(input).expect_err("must be refused").to_string()
}

#[test]
fn refuses_what_has_no_fixed_layout() {
    assert!(
        message(quote!(
            struct Plain {
                x: u8,
            }
        ))
        .contains("add #[repr(C)]")
    );
    let packed = quote!(
        #[repr(packed(2), align(4))]
        struct Packed {
            x: u8,
        }
    );
    assert!(message(packed).contains("add #[repr(C)]"));
}

#[test]
fn refuses_what_holds_no_value() {
    assert!(message(quote!(#[repr(C)] union Bits { x: u8 })).contains("`Bits` is a union"));
    assert!(
        message(quote!(
            #[repr(C)]
            struct Unit;
        ))
        .contains("without fields")
    );
    assert!(
        message(quote!(
            #[repr(u8)]
            enum Never {}
        ))
        .contains("`Never` has no variant")
    );
}

#[test]
fn refuses_enums_whose_bytes_are_not_fixed() {
    assert!(
        message(quote!(
            #[repr(C)]
            enum Kind {
                A,
            }
        ))
        .contains("add #[repr(u8)]")
    );
    let fields = message(quote!(
        #[repr(u8)]
        enum Shape {
            Point,
            Circle(f64),
        }
    ));
    assert!(fields.contains("`Shape::Circle` has some"), "{fields}");
}

#[test]
fn refuses_lifetimes() {
    let text = message(quote!(
        #[repr(C)]
        struct Text<'a> {
            x: &'a u8,
        }
    ));
    assert!(text.contains("borrows for `'a`"), "{text}");
}

#[test]
fn asks_of_parameters_that_they_are_elements() {
    let code = expand(quote!(
        #[repr(C)]
        struct Pair<T, const N: usize> {
            a: T,
            b: [T; N],
        }
    ));
    let code = code.unwrap().to_string();
    assert!(code.contains("T : :: spmd :: Element ,"), "{code}");
    assert!(code.contains("[T ; N] : :: spmd :: Element"), "{code}");
}

#[test]
fn finds_its_traits_in_the_facade_unless_told() {
    let default = expand(quote!(
        #[repr(C)]
        struct P(u8);
    ))
    .unwrap()
    .to_string();
    assert!(default.contains(":: spmd :: Element for P"), "{default}");
    let named = expand(quote!(
        #[repr(C)]
        #[spmd(crate = a::b)]
        struct P(u8);
    ))
    .unwrap();
    assert!(named.to_string().contains("impl a :: b :: Element for P"));
    let unknown = quote!(
        #[repr(C)]
        #[spmd(path = a)]
        struct P(u8);
    );
    assert!(message(unknown).contains("crate = path"));
}
