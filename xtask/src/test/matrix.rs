//! The programs that must work on the device, as data: one row is one case.

/// A program, how it is called, and what it must say.
pub struct Case {
    /// Program and arguments; a server gets the port, a client also the server's address.
    pub command: Vec<String>,
    /// Options of the device.
    pub device: &'static [&'static str],
    /// How many processes of it there are.
    pub processes: Processes,
    /// What a good run shows.
    pub expect: Expect,
}

/// How many processes a case has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// One.
    Alone,
    /// That many pairs of server and client at once.
    Pairs(usize),
}

/// What the output of a good run shows.
#[derive(Clone, Copy)]
pub enum Expect {
    /// Each of these texts.
    Texts(&'static [&'static str]),
    /// Refusal: a failing exit code, and this text.
    Refusal(&'static str),
    /// A result line of perftest for that many message sizes.
    Sizes(usize),
}

/// ibv_rc_pingpong and ibv_ud_pingpong; RoCE needs the GRH that a GID index brings.
const PINGPONGS: &[(&str, &str, Expect)] = &[
    ("ibv_rc_pingpong", "-g 0", PINGPONG),
    ("ibv_rc_pingpong", "-g 0 -e", PINGPONG),
    ("ibv_rc_pingpong", "-g 0 -c", PINGPONG),
    ("ibv_rc_pingpong", "-g 0 -s 1", PINGPONG),
    ("ibv_rc_pingpong", "-g 0 -s 1048576 -n 200", PINGPONG),
    ("ibv_rc_pingpong", "-g 0 -n 10000", PINGPONG),
    // Completion timestamps came with the third generation.
    ("ibv_rc_pingpong", "-g 0 -t", Expect::Refusal("completion timestamp")),
    ("ibv_ud_pingpong", "-g 0", PINGPONG),
    ("ibv_ud_pingpong", "-g 0 -e", PINGPONG),
    ("ibv_ud_pingpong", "-g 0 -c", PINGPONG),
];
const PINGPONG: Expect = Expect::Texts(&["iters in"]);

/// Programs that need nobody on the other side.
const ALONE: &[(&str, &str, Expect)] = &[
    ("ibv_devices", "", Expect::Texts(&["irdma0"])),
    ("ibv_devinfo", "-v", Expect::Texts(&["irdma0", "PORT_ACTIVE", "max_qp:"])),
    ("ucx_info", "-d", Expect::Texts(&["Transport: rc_verbs", "Transport: ud_verbs"])),
];

/// One of perftest's programs over one transport.
struct Perftest {
    program: &'static str,
    connection: &'static str,
    /// A bandwidth test has -b, -q and -l; a latency test has not.
    is_bandwidth: bool,
    /// Whether it can sleep on completion events.
    has_events: bool,
    /// Whether it can send inline.
    has_inline: bool,
    /// How many sizes -a has: powers of two from 2 bytes to 8 MiB, or to the MTU, 1024, over UD.
    sizes: usize,
}

const PERFTESTS: &[Perftest] = &[
    perftest("ib_send_bw", "RC"),
    perftest("ib_send_bw", "UD"),
    perftest("ib_send_lat", "RC"),
    perftest("ib_send_lat", "UD"),
    perftest("ib_write_bw", "RC"),
    perftest("ib_write_lat", "RC"),
    perftest("ib_read_bw", "RC"),
    perftest("ib_read_lat", "RC"),
];

const fn perftest(program: &'static str, connection: &'static str) -> Perftest {
    let name = program.as_bytes();
    let is_ud = connection.as_bytes()[0] == b'U';
    // ib_VERB_bw or ib_VERB_lat.
    let is_bandwidth = name[name.len() - 1] == b'w';
    let (is_write, is_read) = (name[3] == b'w', name[3] == b'r');
    Perftest {
        program,
        connection,
        is_bandwidth,
        has_events: !is_write,
        has_inline: !is_read,
        sizes: if is_ud { 10 } else { 23 },
    }
}

/// Every case, in the order of the run.
pub fn cases(full: bool) -> Vec<Case> {
    let row = |processes| {
        move |&(program, arguments, expect): &(&str, &str, Expect)| Case {
            command: words(&format!("{program} {arguments}")),
            device: &[],
            processes,
            expect,
        }
    };
    let mut cases: Vec<Case> = ALONE.iter().map(row(Processes::Alone)).collect();
    cases.extend(PINGPONGS.iter().map(row(Processes::Pairs(1))));
    for test in PERFTESTS {
        cases.extend(test.cases(full));
    }
    cases
}

/// What only the third generation has, and programs that use more of it than of the second; the
/// C provider of rdma-core 44 does not know it.
const THIRD_GENERATION: &[(&str, &str, Expect)] = &[
    ("ibv_srq_pingpong", "-g 0", PINGPONG),
    ("ibv_srq_pingpong", "-g 0 -e", PINGPONG),
    ("ibv_srq_pingpong", "-g 0 -c", PINGPONG),
    ("ibv_srq_pingpong", "-g 0 -q 1 -s 1", PINGPONG),
    ("ibv_srq_pingpong", "-g 0 -q 64 -n 100 -r 1000 -m 2048 -l 3", PINGPONG),
    ("ibv_rc_pingpong", "-g 0", PINGPONG),
    ("ibv_rc_pingpong", "-g 0 -t", PINGPONG),
    ("ibv_ud_pingpong", "-g 0", PINGPONG),
    ("ib_send_bw", "-F -n 100 -s 1024 --use-srq -q 4", Expect::Sizes(1)),
    ("ib_send_bw", "-c UD -F -n 100 -s 1024 --use-srq", Expect::Sizes(1)),
    ("ib_send_lat", "-F -n 100 -I 64 --use-srq", Expect::Sizes(1)),
    ("ib_send_lat", "-F -n 100 -I 64 --use-srq --use_old_post_send", Expect::Sizes(1)),
    ("ib_send_lat", "-c UD -F -n 100 -I 64 --use-srq -e", Expect::Sizes(1)),
    ("ib_send_bw", "-F -n 100 -s 1024 --use-srq -q 16 -e", Expect::Sizes(1)),
    ("ib_send_bw", "-F -n 100 -s 1024 --use-srq -b --use_old_post_send", Expect::Sizes(1)),
    ("ib_send_bw", "-F -D 1 -f 0 -s 1024 --use-srq -q 2", Expect::Sizes(1)),
    ("ib_send_bw", "-F -n 96 -s 1024 -l 16 --recv_post_list=16", Expect::Sizes(1)),
    ("ib_send_bw", "-c UD -F -n 100 -s 1024", Expect::Sizes(1)),
    ("ib_send_bw", "-c UD -F -n 100 -s 1024 --use_old_post_send", Expect::Sizes(1)),
    ("ib_send_lat", "-F -n 100 -I 216 -s 216", Expect::Sizes(1)),
    ("ib_write_bw", "-F -n 100 -a", Expect::Sizes(23)),
    ("ib_write_bw", "-F -n 100 -s 1024 --use_old_post_send -q 16", Expect::Sizes(1)),
    ("ib_read_bw", "-F -n 100 -a", Expect::Sizes(23)),
    ("ib_read_bw", "-F -n 100 -s 1024 --use_old_post_send -q 16", Expect::Sizes(1)),
    ("ib_atomic_bw", "-F -n 100 -A FETCH_AND_ADD", Expect::Sizes(1)),
    ("ib_atomic_bw", "-F -n 100 -A FETCH_AND_ADD --use_old_post_send", Expect::Sizes(1)),
    ("ib_atomic_bw", "-F -n 100 -A CMP_AND_SWAP -q 4", Expect::Sizes(1)),
    ("ib_atomic_bw", "-F -n 100 -A CMP_AND_SWAP -q 16 -b", Expect::Sizes(1)),
    ("ib_atomic_bw", "-F -n 96 -A CMP_AND_SWAP -l 16", Expect::Sizes(1)),
    ("ib_atomic_bw", "-F -n 100 -A FETCH_AND_ADD -e", Expect::Sizes(1)),
    ("ib_atomic_lat", "-F -n 100 -A FETCH_AND_ADD", Expect::Sizes(1)),
    ("ib_atomic_lat", "-F -n 100 -A FETCH_AND_ADD --use_old_post_send", Expect::Sizes(1)),
    ("ib_atomic_lat", "-F -n 100 -A CMP_AND_SWAP", Expect::Sizes(1)),
];

/// The cases of the third generation.
pub fn third_generation() -> impl Iterator<Item = Case> {
    THIRD_GENERATION.iter().map(|&(program, arguments, expect)| Case {
        command: words(&format!("{program} {arguments}")),
        device: &["--gen", "3"],
        processes: Processes::Pairs(1),
        expect,
    })
}

/// On a device that offers push pages to all queue pairs, to one only, and to all where
/// doorbells are not trapped.
const PUSHED: &[(&[&str], &str, &str, Expect)] = &[
    (PAGES, "ibv_rc_pingpong", "-g 0", PINGPONG),
    (PAGES, "ibv_rc_pingpong", "-g 0 -s 1048576 -n 200", PINGPONG),
    (PAGES, "ibv_ud_pingpong", "-g 0", PINGPONG),
    (PAGES, "ib_send_lat", "-F -n 500 -s 64 -I 64", Expect::Sizes(1)),
    (PAGES, "ib_send_lat", "-F -n 500 -s 64 -I 64 --use_old_post_send", Expect::Sizes(1)),
    (PAGES, "ib_write_lat", "-F -n 500 -s 8 -I 64", Expect::Sizes(1)),
    (PAGES, "ib_send_bw", "-F -n 512 -s 101 -I 101 -l 16 -q 4", Expect::Sizes(1)),
    (PAGES, "ib_write_bw", "-F -n 20 -a", Expect::Sizes(23)),
    (PAGES, "ib_read_bw", "-F -n 500 -s 1024 -q 4", Expect::Sizes(1)),
    (ONE_PAGE, "ibv_rc_pingpong", "-g 0 -n 200", PINGPONG),
    (ONE_PAGE, "ib_send_bw", "-F -n 512 -s 64 -I 64 -l 16 -q 4", Expect::Sizes(1)),
    (POLLED_PAGES, "ibv_rc_pingpong", "-g 0 -n 200 -e", PINGPONG),
    (POLLED_PAGES, "ib_send_bw", "-F -n 512 -s 64 -I 64 -l 16", Expect::Sizes(1)),
];
const PAGES: &[&str] = &["--push", "16"];
const ONE_PAGE: &[&str] = &["--push", "1"];
const POLLED_PAGES: &[&str] = &["--push", "16", "--mode", "poll"];

/// The cases of devices that offer push pages.
pub fn pushed() -> impl Iterator<Item = Case> {
    PUSHED.iter().map(|&(device, program, arguments, expect)| Case {
        command: words(&format!("{program} {arguments}")),
        device,
        processes: Processes::Pairs(1),
        expect,
    })
}

impl Perftest {
    /// Default, without work request builders, all sizes, both directions, several queue pairs,
    /// few and many signaled, posting lists, for a time, events, inline sizes around its limits, and
    /// four processes at once.
    fn cases(&self, full: bool) -> Vec<Case> {
        let iterations = if full { 5000 } else { 100 };
        let mut cases = Vec::new();
        let mut add = |arguments: String, processes, sizes| {
            let command = format!("{} -c {} -F {arguments}", self.program, self.connection);
            cases.push(Case {
                command: words(&command),
                device: &[],
                processes,
                expect: Expect::Sizes(sizes),
            });
        };
        let one = Processes::Pairs(1);
        let many = format!("-n {iterations}");
        // The default inline size of ib_send_lat is above what the device has.
        let inline = if self.has_inline { " -I 64" } else { "" };
        let default = format!("{many} -s 1024{inline}");
        add(default.clone(), one, 1);
        // Of itself it uses work request builders where the provider has them.
        add(format!("{default} --use_old_post_send"), one, 1);
        add(format!("-a -n {}{inline}", if full { 1000 } else { 20 }), one, self.sizes);
        if self.is_bandwidth {
            add(format!("{default} -b"), one, 1);
            add(format!("{default} -q 4"), one, 1);
            add(format!("{default} -q 16"), one, 1);
            // As many signaled as there are, and all but the last unsignaled.
            add(format!("{default} -Q 1"), one, 1);
            add(format!("{default} -Q 50"), one, 1);
            let lists = format!("-n {} -s 1024{inline} -l 16", iterations / 16 * 16);
            add(lists.clone(), one, 1);
            add(format!("{lists} --use_old_post_send"), one, 1);
            if self.program == "ib_send_bw" {
                add(format!("{lists} --recv_post_list=16"), one, 1);
            }
        }
        // For a time instead of a number of messages.
        add(format!("-D 1 -f 0 -s 1024{inline}"), one, 1);
        if self.has_events {
            add(format!("{default} -e"), one, 1);
        }
        if self.has_inline {
            for size in [0, 8, 9, 64, 101] {
                // A message of the size that just fits.
                add(format!("{many} -I {size} -s {}", size.max(2)), one, 1);
            }
        }
        add(default, Processes::Pairs(2), 1);
        cases
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<String> = cases(false)
            .iter()
            .map(|case| format!("{} {}", case.command.join(" "), case.processes == Processes::Pairs(2)))
            .collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
