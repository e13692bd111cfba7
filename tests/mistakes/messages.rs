//! Messages that do not fit, and such that nobody receives.

use spmd::prelude::*;

use crate::expect::mistake;

#[test]
fn a_message_longer_than_its_buffer() {
    for len in [2, 5_000, 100_000] {
        mistake(2, |ctx| {
            if ctx.rank() == 0 {
                return ctx.send(&vec![1; len], 1, 5); // <1>
            }
            let mut short = vec![-1; len - 1];
            let result = ctx.recv(&mut short, 0, 5); // <2>
            assert!(short.iter().all(|x| *x == -1), "nothing is overwritten");
            result.map(drop)
        })
        .error(
            &[1],
            |error| matches!(error, Error::Truncated(message) if message.from == 0 && message.tag == 5),
            &["the message from rank 0 (tag 5, sent at <1>)", "from rank 0 with tag 5 at <2>"],
        )
        .fine(&[0]);
    }
}

#[test]
fn a_message_of_another_type() {
    for len in [2, 100_000] {
        mistake(2, |ctx| {
            if ctx.rank() == 0 {
                return ctx.send(&vec![1i32; len], 1, 5); // <1>
            }
            let mut room = vec![-1f32; len];
            let result = ctx.recv(&mut room, ANY, ANY); // <2>
            assert!(room.iter().all(|x| *x == -1.0), "nothing is overwritten");
            result.map(drop)
        })
        .error(
            &[1],
            |error| matches!(error, Error::ElementType(message) if message.from == 0 && message.tag == 5),
            &["sent at <1>) carries i32, and the receive is of f32", "at <2>"],
        )
        .fine(&[0]);
    }
}

#[test]
fn a_vector_of_another_type() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send(&[1u8, 2], 1, 5),            // <1>
        _ => ctx.recv_vec::<bool>(0, 5).map(drop), // <2>
    })
    .error(
        &[1],
        |error| matches!(error, Error::ElementType(_)),
        &["sent at <1>) carries u8, and the receive is of bool", "at <2>"],
    );
}

/// The rank may go on after such an error: the message is consumed, and the next one fits.
#[test]
fn going_on_after_a_message_that_did_not_fit() {
    for (_, place) in crate::expect::MODES {
        let done = place(Spmd::new(2)).run(|ctx| {
            if ctx.rank() == 0 {
                ctx.send(&[1; 9], 1, 5)?;
                return ctx.send(&[2], 1, 5);
            }
            let mut room = [0];
            assert!(matches!(ctx.recv(&mut room, 0, 5), Err(Error::Truncated(_))));
            ctx.recv(&mut room, 0, 5)?;
            assert_eq!(room, [2]);
            Ok(())
        });
        done.unwrap();
    }
}

#[test]
fn a_sendrecv_into_too_short_a_buffer() {
    mistake(2, |ctx| {
        let mut room = [0; 3];
        ctx.sendrecv(&[1; 4], 1 - ctx.rank(), 0, &mut room, 1 - ctx.rank(), 0).map(drop) // <1>
    })
    .error(
        &[0],
        |error| matches!(error, Error::Truncated(_) | Error::PeerFailed(_)),
        &["4 elements and the buffer holds 3", "<1>"],
    );
}

#[test]
fn an_object_of_another_type() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send_object("two", 1, 5),           // <2>
        _ => ctx.recv_object::<f64>(0, 5).map(drop), // <1>
    })
    .error(
        &[1],
        |error| matches!(error, Error::ElementType(_)),
        &["recv_object of f64 from rank 0 with tag 5 at <1>", "sent at <2>) carries str, and"],
    );
}

/// The bytes of both are the same.
#[test]
fn an_object_that_could_be_read_as_another_type() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send_object(&7u32, 1, 5),
        _ => ctx.recv_object::<i32>(ANY, ANY).map(drop),
    })
    .error(
        &[1],
        |error| matches!(error, Error::ElementType(_)),
        &["carries u32, and the receive is of i32"],
    );
}

#[test]
fn an_object_received_as_elements() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send_object(&[7u8; 3], 1, 5),
        _ => ctx.recv_vec::<u8>(0, 5).map(drop), // <1>
    })
    .error(
        &[1],
        |error| matches!(error, Error::ElementType(_)),
        &["recv_vec of u8 from rank 0 with tag 5 at <1>", "carries [u8; 3], and"],
    );
}

mod fluid {
    use spmd::prelude::*;

    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    pub(super) struct Cell {
        pub(super) pressure: f64,
    }
}

mod solid {
    use spmd::prelude::*;

    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    pub(super) struct Cell {
        pub(super) stress: f64,
    }
}

#[test]
fn a_struct_of_the_same_name() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send(&[fluid::Cell { pressure: 1.0 }], 1, 5),
        _ => {
            let mut room = [solid::Cell { stress: 0.0 }];
            let result = ctx.recv(&mut room, 0, 5);
            assert_eq!(room[0].stress, 0.0);
            result.map(drop)
        }
    })
    .error(
        &[1],
        |error| matches!(error, Error::ElementType(_)),
        &["messages::fluid::Cell, and the receive is of", "messages::solid::Cell;"],
    );
}

#[test]
fn a_message_never_received() {
    mistake(2, |ctx| {
        if ctx.rank() == 0 {
            ctx.send(&[1, 2], 1, 5)?; // <1>
            ctx.send(&[3], 1, 5)?;
        }
        Ok(())
    })
    .whole(
        |error| {
            let Error::Unreceived(messages) = error else { return false };
            let first = (messages.from, messages.tag, messages.len);
            (messages.rank, messages.count, first) == (1, 2, (0, 5, 2))
        },
        &["2 message(s) to rank 1 were never received", "from rank 0 with tag 5", "sent at <1>"],
    );
}

#[test]
fn a_message_to_oneself_never_received() {
    mistake(3, |ctx| match ctx.rank() {
        2 => ctx.send(&[1u8], 2, 77), // <1>
        _ => Ok(()),
    })
    .whole(
        |error| matches!(error, Error::Unreceived(messages) if messages.rank == 2),
        &["tag 77", "<1>"],
    );
}

#[test]
fn a_message_never_received_on_a_communicator_that_is_gone() {
    mistake(2, |ctx| {
        let copy = ctx.dup()?;
        if ctx.rank() == 0 {
            copy.send(&[1.5], 1, 5)?; // <1>
        }
        ctx.barrier()
    })
    .whole(
        |error| matches!(error, Error::Unreceived(messages) if messages.rank == 1),
        &["sent at <1>"],
    );
}

#[test]
fn a_large_message_never_received() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send(&vec![1u8; 200_000], 1, 5), // <1>
        _ => Ok(()),
    })
    .left(
        &[0],
        1,
        &["rank 1 ended its block", "send of 200000 u8 to rank 1 with tag 5 at <1>"],
    );
}

#[test]
fn a_probed_message_never_received() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.send(&[1u8], 1, 5), // <1>
        _ => ctx.probe(0, 5).map(|status| assert_eq!(status.len(), 1)),
    })
    .whole(|error| matches!(error, Error::Unreceived(_)), &["<1>"]);
}
