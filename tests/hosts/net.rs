//! Hosts that a test makes: each a set of Linux namespaces (network, host name, processes, mounts,
//! System V objects), joined by virtual cables that end in one bridge.
//!
//! A namespace lives as long as a process in it. The first process of each is a remote shell
//! (`rsh.py`) which ends when its standard input does, so with this test, however that ends; and
//! the kernel ends all others with it. Nothing of this has a name in the file system.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Names as users would give them.
pub(crate) const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// Prints its own number as the world outside knows it, waits until its network is there, and
/// becomes the remote shell. What hosts share otherwise, `/dev/shm` above all, each gets anew;
/// for `/tmp`, where this test's files may lie, that is a folder of its own.
const FIRST: &str = "\
read -r pid rest </proc/self/stat && echo \"$pid\" >\"$1/$2.pid\"
export TMPDIR=\"$1/$2\" && mkdir \"$TMPDIR\" \
&& hostname \"$2\" && mount --bind \"$1/hosts\" /etc/hosts && mount -t proc proc /proc \
&& mount -t tmpfs tmpfs /dev/shm && ip link set lo up && read -r go \
&& exec python3 \"$1/rsh.py\" serve \"$1/$2.ready\"";

/// How long making a host may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Hosts on one network.
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    bridge: Option<Host>,
    folder: Option<TempDir>,
}

struct Host {
    name: &'static str,
    /// Its first process.
    pid: u32,
    /// `unshare`, which waits for that.
    child: Child,
    /// What they wrote to their standard error.
    said: PathBuf,
}

impl Hosts {
    /// None: this process runs on one of those that another has made.
    pub(crate) fn inside() -> Hosts {
        Hosts { hosts: Vec::new(), bridge: None, folder: None }
    }

    /// Makes `count` hosts.
    ///
    /// Errors: why this machine cannot have any.
    pub(crate) fn new(count: usize) -> Result<Hosts, String> {
        possible()?;
        let folder =
            tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let mut table = String::from("127.0.0.1 localhost\n");
        for (index, name) in NAMES[..count].iter().enumerate() {
            table += &format!("{} {name}\n", address(index));
        }
        let shell = folder.path().join("rsh.py");
        let written = fs::write(folder.path().join("hosts"), table)
            .and_then(|()| fs::write(&shell, include_str!("rsh.py")))
            .and_then(|()| fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)));
        written.map_err(|error| format!("{}: {error}", folder.path().display()))?;

        let bridge = Host::new("bridge", folder.path())?;
        run(bridge.enter(&["--net"]).args(["ip", "link", "add", "bridge", "type", "bridge"]))?;
        run(bridge.enter(&["--net"]).args(["ip", "link", "set", "bridge", "up"]))?;
        let mut made = Hosts { hosts: Vec::new(), bridge: Some(bridge), folder: Some(folder) };
        for (index, name) in NAMES[..count].iter().enumerate() {
            made.add(index, name)?;
        }
        for host in &mut made.hosts {
            let folder = made.folder.as_ref().expect("just made").path();
            host.go(&folder.join(format!("{}.ready", host.name)))?;
        }
        Ok(made)
    }

    fn add(&mut self, index: usize, name: &'static str) -> Result<(), String> {
        let host = Host::new(name, self.folder())?;
        let bridge = self.bridge.as_ref().expect("it is made first");
        let pid = host.pid.to_string();
        let mut cable = bridge.enter(&["--net"]);
        cable.args(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns"]);
        run(cable.arg(pid))?;
        run(bridge.enter(&["--net"]).args(["ip", "link", "set", name, "master", "bridge", "up"]))?;
        let place = format!("{}/24", address(index));
        run(host.enter(&["--net"]).args(["ip", "address", "add", &place, "dev", "eth0"]))?;
        run(host.enter(&["--net"]).args(["ip", "link", "set", "eth0", "up"]))?;
        self.hosts.push(host);
        Ok(())
    }

    /// What the hosts and this test share.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("these hosts were made here").path()
    }

    /// The remote shell, as launchers call it.
    pub(crate) fn shell(&self) -> PathBuf {
        self.folder().join("rsh.py")
    }

    /// `alpha:2,beta:2`
    pub(crate) fn list(&self, each: usize) -> String {
        let items: Vec<_> = self.hosts.iter().map(|host| format!("{}:{each}", host.name)).collect();
        items.join(",")
    }

    /// A command that runs this program on the first host.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = self.hosts[0].enter(&["--all"]);
        command.arg(program).stdin(Stdio::null());
        command.env("TMPDIR", self.folder().join(self.hosts[0].name));
        command
    }

    /// Bytes that each host has sent to others so far.
    pub(crate) fn sent(&self) -> Vec<u64> {
        let sent = |host: &Host| {
            let table = fs::read_to_string(format!("/proc/{}/net/dev", host.pid)).ok()?;
            let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:"))?;
            // Eight figures of what came, then the same of what went.
            line.split_whitespace().nth(8)?.parse().ok()
        };
        self.hosts.iter().map(|host| sent(host).unwrap_or(0)).collect()
    }

    /// Pulls a host's cable out of the bridge.
    pub(crate) fn cut(&self, index: usize) {
        let bridge = self.bridge.as_ref().expect("these hosts were made here");
        let name = self.hosts[index].name;
        run(bridge.enter(&["--net"]).args(["ip", "link", "set", name, "down"])).expect("a cable");
    }

    /// As if a host lost its power: nothing leaves it any more, and all its processes are gone.
    pub(crate) fn kill(&mut self, index: usize) {
        self.cut(index);
        self.hosts[index].end();
    }

    /// The processes that run on the hosts, besides the remote shells: host and command line.
    pub(crate) fn running(&self) -> Vec<(u32, String)> {
        let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let mine: BTreeSet<_> =
            self.hosts.iter().filter_map(|host| space(&host.pid.to_string())).collect();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
        let pids = pids.filter(|pid| space(pid).is_some_and(|space| mine.contains(&space)));
        let pids = pids.filter_map(|pid| pid.parse::<u32>().ok());
        let pids = pids.filter(|pid| self.hosts.iter().all(|host| host.pid != *pid));
        let line = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&line).replace('\0', " "))
        };
        // What has ended and was not waited for has no command line.
        pids.map(line).filter(|(_, line)| !line.is_empty()).collect()
    }
}

fn address(index: usize) -> String {
    format!("10.77.0.{}", index + 1)
}

impl Host {
    fn new(name: &'static str, folder: &Path) -> Result<Host, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", FIRST, "sh"]).arg(folder).arg(name);
        let said = folder.join(format!("{name}.err"));
        let file = fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut host = Host { name, pid: 0, child, said };
        let file = folder.join(format!("{name}.pid"));
        let text = host.wait_for(&file)?;
        host.pid = text.trim().parse().map_err(|_| format!("'{text}' is no process"))?;
        Ok(host)
    }

    /// Waits until a file is there with a line of text.
    fn wait_for(&mut self, file: &Path) -> Result<String, String> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match fs::read_to_string(file) {
                Ok(text) if text.ends_with('\n') => return Ok(text),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = fs::read_to_string(&self.said).unwrap_or_default();
                return Err(format!("the host {}: {status}: {}", self.name, said.trim()));
            }
        }
        Err(format!("the host {} did not come up in {PATIENCE:?}", self.name))
    }

    /// Lets it begin to serve, and waits until it does.
    fn go(&mut self, ready: &Path) -> Result<(), String> {
        use std::io::Write;
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"go\n").map_err(|error| format!("the host {}: {error}", self.name))?;
        self.wait_for(ready).map(drop)
    }

    /// `nsenter` into some of its namespaces; what to run there is for the caller to add.
    fn enter(&self, which: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string()]).args(which).arg("--");
        command
    }

    /// Ends all its processes.
    fn end(&mut self) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
            && let Ok(None) = self.child.try_wait()
        {
            // It fails where the process has just ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.child.stdin = None;
        self.end();
    }
}

/// Errors: why namespaces cannot be made here.
fn possible() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("hosts are made of namespaces, which only root may make".into());
    }
    for (program, question) in
        [("ip", "-Version"), ("unshare", "--version"), ("nsenter", "--version"), ("python3", "-V")]
    {
        let known = Command::new(program).arg(question).output();
        if !known.is_ok_and(|output| output.status.success()) {
            return Err(format!("there is no {program} (Debian: iproute2, util-linux, python3)"));
        }
    }
    let mut cable = Command::new("unshare");
    cable.args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "ip", "link", "add"]);
    run(cable.args(["type", "veth"])).map_err(|why| format!("no namespaces, or no cables: {why}"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or(format!("{command:?}: {}", said.trim()))
}
