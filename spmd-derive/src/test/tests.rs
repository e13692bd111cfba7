use super::*;

fn code(arguments: TokenStream, function: TokenStream) -> String {
    expand(arguments, function).unwrap().to_string()
}

fn message(arguments: TokenStream, function: TokenStream) -> String {
    expand(arguments, function).expect_err("must be refused").to_string()
}

fn sums() -> TokenStream {
    quote!(
        fn sums(ctx: &Ctx) -> Result<()> {
            Ok(())
        }
    )
}

#[test]
fn there_is_a_test_for_each_pair() {
    let default = code(quote!(), sums());
    let of = |name: &str| default.contains(&format!("fn {name} ()"));
    assert!(["threads_1", "threads_2", "virtual_ranks_5"].into_iter().all(of), "{default}");
    assert!(!default.contains("processes") && default.contains(":: spmd :: testing"));

    let chosen = code(quote!(ranks = [3], places = [processes], crate = crate), sums());
    assert!(chosen.contains("fn processes_3 ()") && !chosen.contains("threads"), "{chosen}");
    assert!(chosen.contains("crate :: testing :: processes"), "{chosen}");
}

#[test]
fn attributes_go_where_they_belong() {
    let code = code(
        quote!(ranks = [1]),
        quote!(
            #[allow(lint)]
            #[should_panic]
            fn f(_: &Ctx) {}
        ),
    );
    assert_eq!(code.matches("should_panic").count(), 2, "{code}");
    assert_eq!(code.matches("allow (lint)").count(), 1, "{code}");
}

#[test]
fn refuses_what_is_no_such_function() {
    assert!(
        message(
            quote!(),
            quote!(
                struct S;
            )
        )
        .contains("is for functions")
    );
    assert!(
        message(
            quote!(),
            quote!(
                async fn f(ctx: &Ctx) {}
            )
        )
        .contains("is for functions")
    );
    assert!(
        message(
            quote!(),
            quote!(
                fn f<T>(ctx: &Ctx) {}
            )
        )
        .contains("parameters of types")
    );
    let none = message(
        quote!(),
        quote!(
            fn f() {}
        ),
    );
    assert!(none.contains("`f` takes 0 arguments"), "{none}");
    let two = message(
        quote!(),
        quote!(
            fn f(ctx: &Ctx, map: Map<u8, u8>) {}
        ),
    );
    assert!(two.contains("takes 2 arguments"), "{two}");
}

#[test]
fn refuses_other_arguments() {
    let refused = |arguments: TokenStream| message(arguments, sums());
    assert!(refused(quote!(rank = [1])).contains("has no `rank`"));
    assert!(refused(quote!(ranks = [0])).contains("at least one rank"));
    assert!(refused(quote!(ranks = [2, 2])).contains("twice"));
    assert!(refused(quote!(ranks = [])).contains("no test"));
    assert!(refused(quote!(places = [gpus])).contains("no place `gpus`"));
}
