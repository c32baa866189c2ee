//! Makes a program shorter that shows a difference, for as long as it shows the same one.

use rdma_core_sys::bindings::IBV_WR_SEND;

use crate::program::{Bind, Key, Place, Program, Receive, Send, Step};

/// The shortest program found that `still` holds for, as it does for `program`.
pub fn shrink(program: Program, still: &mut impl FnMut(&Program) -> bool) -> Program {
    let mut shortest = program;
    loop {
        let before = shortest.clone();
        shortest = without_steps(shortest, still);
        shortest = simpler_steps(shortest, still);
        if shortest == before {
            return shortest;
        }
    }
}

/// Takes out runs of steps, long ones first.
fn without_steps(mut program: Program, still: &mut impl FnMut(&Program) -> bool) -> Program {
    let mut length = program.len().next_power_of_two();
    while length > 0 {
        let mut start = 0;
        while start < program.len() {
            let end = (start + length).min(program.len());
            let mut shorter = program.clone();
            shorter.drain(start..end);
            if still(&shorter) {
                program = shorter;
            } else {
                start = end;
            }
        }
        length /= 2;
    }
    program
}

/// Makes steps simpler one by one.
fn simpler_steps(mut program: Program, still: &mut impl FnMut(&Program) -> bool) -> Program {
    for index in 0..program.len() {
        'again: loop {
            for step in simpler(&program[index]) {
                let mut tried = program.clone();
                if tried[index] == step {
                    continue;
                }
                tried[index] = step;
                if still(&tried) {
                    program = tried;
                    continue 'again;
                }
            }
            break;
        }
    }
    program
}

/// What stands in a request that is no bind.
const NO_BIND: Bind = Bind { mr: 0, offset: 0, length: 0, access: 0 };

/// Steps that are a little simpler than this one.
fn simpler(step: &Step) -> Vec<Step> {
    let mut found = Vec::new();
    match step {
        Step::PostSend { qp, list } => {
            let mut add = |list| found.push(Step::PostSend { qp: *qp, list });
            for index in 0..list.len() {
                add(without(list, index));
            }
            for (index, send) in list.iter().enumerate() {
                for element in 0..send.elements.len() {
                    let mut list = list.clone();
                    list[index].elements.remove(element);
                    add(list);
                }
                for bit in (0..32).filter(|bit| send.flags >> bit & 1 != 0) {
                    let mut list = list.clone();
                    list[index].flags &= !(1 << bit);
                    add(list);
                }
                let plain = Send { opcode: IBV_WR_SEND, ..send.clone() };
                let keyless = Send { remote: Place { offset: 0, key: Key::Number(0) }, ..send.clone() };
                let simplest = Send { immediate: 0, ah: 0, peer: *qp, bind: NO_BIND, ..send.clone() };
                for simpler in [plain, keyless, simplest, Send { stale: false, ..send.clone() }] {
                    let mut list = list.clone();
                    list[index] = simpler;
                    add(list);
                }
            }
        }
        Step::PostRecv { qp, list } => {
            for list in simpler_receives(list) {
                found.push(Step::PostRecv { qp: *qp, list });
            }
        }
        Step::Run { times } if *times > 1 => found.push(Step::Run { times: 1 }),
        Step::CreateCq { cq, entries, channel: Some(_), vector } => {
            found.push(Step::CreateCq { cq: *cq, entries: *entries, channel: None, vector: *vector });
        }
        Step::CreateCqEx { cq, entries, channel, .. } => {
            found.push(Step::CreateCq { cq: *cq, entries: *entries as i32, channel: *channel, vector: 0 });
        }
        Step::PostSrqRecv { srq, list } => {
            for list in simpler_receives(list) {
                found.push(Step::PostSrqRecv { srq: *srq, list });
            }
        }
        Step::CreateQp { .. } => found.extend((0..).map_while(|number| simpler_creation(step, number))),
        _ => {}
    }
    found
}

/// Lists of receives that are a little simpler.
fn simpler_receives(list: &[Receive]) -> Vec<Vec<Receive>> {
    let mut found: Vec<_> = (0..list.len()).map(|index| without(list, index)).collect();
    for (index, receive) in list.iter().enumerate() {
        for element in 0..receive.elements.len() {
            let mut list = list.to_vec();
            list[index].elements.remove(element);
            found.push(list);
        }
        if receive.stale {
            let mut list = list.to_vec();
            list[index].stale = false;
            found.push(list);
        }
    }
    found
}

/// A queue pair that is created a little simpler; `None` if it is as simple as that.
fn simpler_creation(step: &Step, number: usize) -> Option<Step> {
    let mut simpler = step.clone();
    let Step::CreateQp { send_cq, recv_cq, srq, cap, .. } = &mut simpler else { return None };
    match number {
        0 => recv_cq.clone_from(send_cq),
        1 => *srq = None,
        2 => cap.send_wr = 1,
        3 => cap.recv_wr = 1,
        4 => cap.send_sge = 1,
        5 => cap.recv_sge = 1,
        6 => cap.inline = 0,
        _ => return None,
    }
    Some(simpler)
}

fn without<T: Clone>(list: &[T], index: usize) -> Vec<T> {
    let mut list = list.to_vec();
    list.remove(index);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;
    use crate::random::Random;

    #[test]
    fn a_program_shrinks_to_what_makes_it_fail() {
        // As if every signaled read of a list failed.
        let fails = |program: &Program| {
            program.iter().any(|step| match step {
                Step::PostSend { list, .. } => {
                    list.iter().any(|send| send.opcode == 4 && send.flags & 2 != 0)
                }
                _ => false,
            })
        };
        let found = (0..).map(|seed| generate(&mut Random::new(seed), 2)).find(fails).expect("one of them");
        let shortest = shrink(found, &mut |program| fails(program));
        let [Step::PostSend { list, .. }] = &shortest[..] else { panic!("{shortest:?}") };
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].opcode, list[0].flags, list[0].elements.len()), (4, 2, 0));
    }
}
