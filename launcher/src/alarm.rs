//! What a watch of a job under an MPI launcher says has stopped it, as an event.

use crossbeam_channel::Sender;

use crate::environment::Environment;
use crate::error::Error;
use crate::event::Event;

/// Starts to listen, where the job's environment says that somebody does.
pub(crate) fn listen(environment: &Environment, events: Sender<Event>) -> Result<(), Error> {
    let Some(alarm) = environment.alarm.clone() else { return Ok(()) };
    let failed = |error| Error::system("listen to the job's failure detectors", error);
    let work = move || {
        // The receiver is gone only when the launcher is ending.
        let _ = events.send(Event::Alarm(alarm.wait()));
    };
    std::thread::Builder::new().name("alarm".into()).spawn(work).map(drop).map_err(failed)
}
