use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};

use super::*;

const GREETING: [u8; 8] = *b"a secret";

fn acceptor(bounds: Bounds) -> (Acceptor<8>, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
    let place = listener.local_addr().expect("it has one");
    (Acceptor::new(listener, bounds).expect("it is a socket"), place)
}

/// Serves the door for so long, or until somebody was admitted.
fn serve(acceptor: &mut Acceptor<8>, limit: Duration) -> Vec<(TcpStream, [u8; 8])> {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let patience = acceptor.patience().map_or(left, |patience| patience.min(left));
        await_any(&acceptor.descriptors(), Some(patience));
        let admitted = acceptor.admit(|greeting| same(greeting, &GREETING));
        assert!(acceptor.places.len() <= acceptor.bounds.places);
        if !admitted.is_empty() || left.is_zero() {
            return admitted;
        }
    }
}

fn connect(place: SocketAddr) -> TcpStream {
    TcpStream::connect(place).expect("the system has places before the door")
}

/// Whether the other end has let this connection go.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it is a socket");
    match stream.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

#[test]
fn who_knows_the_secret_comes_in_and_what_follows_is_not_read() {
    let (mut acceptor, place) = acceptor(Bounds::BRISK);
    let (mut wrong, mut right) = (connect(place), connect(place));
    wrong.write_all(b"no secret at all").expect("it is connected");
    right.write_all(b"a secret and more").expect("it is connected");
    let mut admitted = serve(&mut acceptor, Duration::from_secs(20));
    let (stream, greeting) = admitted.pop().expect("one knows it");
    assert_eq!((greeting, admitted.len()), (GREETING, 0));
    stream.set_nonblocking(false).expect("it is a socket");
    let mut rest = [0; 9];
    (&stream).read_exact(&mut rest).expect("it is there");
    assert_eq!(&rest, b" and more");
    assert!(serve(&mut acceptor, Duration::from_millis(100)).is_empty());
    assert!(is_closed(&wrong) && !is_closed(&right));
}

#[test]
fn a_greeting_may_come_in_pieces_until_the_deadline() {
    let bounds = Bounds { deadline: Duration::from_millis(800), ..Bounds::BRISK };
    let (mut acceptor, place) = acceptor(bounds);
    let mut slow = connect(place);
    slow.write_all(&GREETING[..3]).expect("it is connected");
    assert!(serve(&mut acceptor, Duration::from_millis(50)).is_empty());
    slow.write_all(&GREETING[3..]).expect("it is connected");
    assert_eq!(serve(&mut acceptor, Duration::from_secs(20)).len(), 1);
    let mut trickling = connect(place);
    let start = Instant::now();
    while !is_closed(&trickling) {
        let _ = trickling.write_all(b"a");
        assert!(serve(&mut acceptor, Duration::from_millis(200)).is_empty());
        assert!(start.elapsed() < Duration::from_secs(20), "it stays for ever");
    }
    assert!(start.elapsed() > Duration::from_millis(700) && acceptor.places.is_empty());
}

#[test]
fn many_silent_strangers_have_a_few_places_and_keep_nobody_out() {
    let (mut acceptor, place) = acceptor(Bounds { places: 4, ..Bounds::BRISK });
    let strangers: Vec<TcpStream> = (0..40).map(|_| connect(place)).collect();
    let mut peer = connect(place);
    peer.write_all(&GREETING).expect("it is connected");
    let start = Instant::now();
    assert_eq!(serve(&mut acceptor, Duration::from_secs(20)).len(), 1);
    // Ten times four of them had their stay.
    assert!(start.elapsed() >= 9 * Bounds::BRISK.stay, "{:?}", start.elapsed());
    let held = strangers.iter().filter(|stranger| !is_closed(stranger)).count();
    assert!(held <= 4, "{held} are held");
    // The oldest went first.
    assert!(is_closed(&strangers[0]) && !is_closed(&strangers[39]));
}

#[test]
fn strangers_that_are_sent_away_at_once_cost_no_more_than_those_that_stay() {
    let bounds = Bounds { places: 4, stay: Duration::from_secs(3600), ..Bounds::BRISK };
    let (mut acceptor, place) = acceptor(bounds);
    for _ in 0..8 {
        connect(place).write_all(b"no secret").expect("it is connected");
    }
    assert!(serve(&mut acceptor, Duration::from_millis(300)).is_empty());
    assert_eq!(acceptor.places.iter().filter(|place| place.stream.is_none()).count(), 4);
    assert!(!acceptor.is_open() && acceptor.descriptors().is_empty());
}

#[test]
fn a_full_door_of_old_strangers_has_nothing_to_do_until_they_go() {
    let bounds =
        Bounds { places: 2, stay: Duration::from_millis(20), deadline: Duration::from_secs(9) };
    let (mut acceptor, address) = acceptor(bounds);
    let _strangers = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
    while acceptor.places.len() < 2 {
        acceptor.admit(|_| false);
    }
    std::thread::sleep(Duration::from_millis(40));
    assert!(acceptor.patience() > Some(Duration::from_secs(5)), "{:?}", acceptor.patience());
}
