use std::marker::PhantomData;

use super::*;

fn id<O: Operation<f64>>(op: O) -> u64 {
    ErasedOp::new::<f64, _>(&op).identity()
}

macro_rules! operation {
    ([$($param:ident)?] $type:ty: $name:literal) => {
        impl<$($param)?> Operation<f64> for $type {
            const NAME: &'static str = $name;

            fn combine(&self, left: f64, right: f64) -> f64 {
                left.max(right)
            }
        }
    };
}

/// Declares operations as one program does, in a module of its own.
macro_rules! program {
    ($program:ident, $name:literal) => {
        mod $program {
            use std::marker::PhantomData;

            use super::super::*;

            pub(super) struct Largest;
            pub(super) struct Other;
            pub(super) struct With<T>(pub(super) PhantomData<fn() -> T>);

            operation!([] Largest: $name);
            operation!([] Other: $name);
            operation!([T] With<T>: $name);

            pub(super) fn longest(a: f64, b: f64) -> f64 {
                if b.abs() > a.abs() { b } else { a }
            }
        }
    };
}

program!(master, "largest");
program!(worker, "largest");

mod stranger {
    use super::*;

    pub(super) struct Largest;

    operation!([] Largest: "greatest");
}

#[test]
fn types_of_two_programs_are_the_same_by_their_names() {
    assert_eq!(id(master::Largest), id(worker::Largest));
    assert_ne!(id(master::Largest), id(master::Other));
    assert_ne!(id(master::Largest), id(stranger::Largest));
    let generic = id(master::With::<master::Largest>(PhantomData));
    assert_eq!(generic, id(worker::With::<worker::Largest>(PhantomData)));
    assert_ne!(generic, id(worker::With::<worker::Other>(PhantomData)));
}

#[test]
fn a_function_is_one_operation_wherever_it_is_taken() {
    let here = id(Op::new(master::longest));
    assert_eq!(here, id(Op::new(master::longest)));
    assert_eq!(here, id(Op::new(worker::longest)));
    assert_ne!(here, id(Op::new(f64::max)));
    assert_ne!(here, id(Op::new(master::longest).non_commutative()));
}

#[test]
fn closures_and_pointers_are_known_by_their_place() {
    assert_ne!(id(Op::new(|a: f64, b: f64| a + b)), id(Op::new(|a: f64, b: f64| a * b)));
    let made = || Op::new(|a: f64, b: f64| a + b);
    assert_eq!(id(made()), id(made()));
    let sum: fn(f64, f64) -> f64 = |a, b| a + b;
    let product: fn(f64, f64) -> f64 = |a, b| a * b;
    assert_ne!(id(Op::new(sum)), id(Op::new(product)));
}

#[test]
fn the_generics_around_a_closure_do_not_count() {
    fn made<T: Default>() -> u64 {
        let _ = T::default();
        id(Op::new(|a: f64, b: f64| a + b))
    }
    assert_eq!(made::<u8>(), made::<Vec<String>>());
}

#[test]
fn a_name_stands_for_type_and_place() {
    let here = id(Op::new(|a: f64, b: f64| a + b).named("sum of lengths"));
    assert_eq!(here, id(Op::new(|a: f64, b: f64| b + a).named("sum of lengths")));
    assert_eq!(here, id(Op::new(master::longest).named("sum of lengths")));
    assert_ne!(here, id(Op::new(|a: f64, b: f64| a + b).named("sum of widths")));
    assert_ne!(here, id(Op::new(|a: f64, b: f64| a + b).named("sum of lengths").non_commutative()));
    assert_ne!(id(Op::new(master::longest).named("longest")), id(Op::new(master::longest)));
}

#[test]
fn a_reference_is_the_operation_itself() {
    let erased = |op: &ErasedOp<'_>| (op.identity(), op.trusted(), op.name());
    let by_value = erased(&ErasedOp::new::<f64, _>(&Sum));
    assert_eq!(by_value, erased(&ErasedOp::new::<f64, _>(&&Sum)));
    assert_eq!(by_value, erased(&ErasedOp::new::<f64, _>(&&&Sum)));
    let longest = Op::new(master::longest).named("longest");
    assert_eq!(
        erased(&ErasedOp::new::<f64, _>(&longest)),
        erased(&ErasedOp::new::<f64, _>(&&longest))
    );
}

/// An operation that says it is another one, but is none that a library knows.
#[test]
fn one_that_runs_unguarded_is_no_other() {
    struct Impostor;
    impl Operation<f64> for Impostor {
        const NAME: &'static str = "Sum";

        fn combine(&self, left: f64, _: f64) -> f64 {
            left
        }

        fn identity(&self) -> u64 {
            ErasedOp::id_of("Sum")
        }
    }
    assert_ne!(id(Impostor), id(Sum));
}

/// Two whose types are called as they are.
#[test]
fn names_that_say_the_same_twice_tell_operations_apart() {
    struct First;
    struct Last;
    impl Operation<f64> for First {
        const NAME: &'static str = "First";

        fn combine(&self, left: f64, _: f64) -> f64 {
            left
        }
    }
    impl Operation<f64> for Last {
        const NAME: &'static str = "Last";

        fn combine(&self, _: f64, right: f64) -> f64 {
            right
        }
    }
    assert_ne!(id(First), id(Last));
}
