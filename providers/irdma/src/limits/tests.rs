//! Sizes as the kernel computes them.

use super::*;

const E810: DeviceLimits = DeviceLimits {
    generation: HardwareGeneration::Gen2,
    features: Features::CQ_RESIZE,
    abi_version: 5,
    max_fragments: 13,
    max_read_fragments: 13,
    max_inline: 101,
    send_chunk: 8,
    max_send_quanta: 32768,
    max_receive_quanta: 32768,
    max_shared_quanta: 0,
    min_work_queue: 8,
    max_completion_slots: 1_048_575,
};
const E2000: DeviceLimits = DeviceLimits {
    generation: HardwareGeneration::Gen3,
    features: Features::CQE_64_BYTES,
    max_fragments: 14,
    max_read_fragments: 14,
    max_inline: 216,
    max_shared_quanta: 262_144,
    min_work_queue: 16,
    ..E810
};

#[test]
fn known_devices_pass_the_check() {
    for limits in [E810, E2000, DeviceLimits::legacy(4)] {
        assert_eq!(limits.check(), Ok(()));
    }
}

#[test]
fn numbers_without_a_format_do_not() {
    for limits in [
        DeviceLimits { send_chunk: 0, ..E810 },
        DeviceLimits { send_chunk: 12, ..E810 },
        DeviceLimits { send_chunk: 2, ..E810 },
        DeviceLimits { max_fragments: 0, ..E810 },
        DeviceLimits { max_fragments: 16, ..E810 },
        DeviceLimits { max_read_fragments: 14, ..E810 },
        DeviceLimits { max_inline: 226, ..E810 },
        DeviceLimits { max_send_quanta: 65536, ..E810 },
        DeviceLimits { max_receive_quanta: u32::MAX, ..E810 },
        DeviceLimits { min_work_queue: 0, ..E810 },
        DeviceLimits { min_work_queue: 12, ..E810 },
        DeviceLimits { max_completion_slots: 0, ..E810 },
        DeviceLimits { max_completion_slots: u32::MAX, ..E810 },
    ] {
        assert!(limits.check().is_err(), "{limits:?}");
    }
}

#[test]
fn send_queues() {
    let size = |limits: DeviceLimits, requests, fragments, inline| {
        let size = limits.send_queue(requests, fragments, inline).unwrap();
        (size.quanta, size.shift, size.entries(), size.usable_entries())
    };
    assert_eq!(size(E810, 0, 0, 0), (512, 0, 512, 254));
    assert_eq!(size(E810, 1, 0, 8), (512, 0, 512, 254));
    // An immediate takes a fragment's place.
    assert_eq!(size(E810, 1, 1, 0), (512, 1, 256, 127));
    assert_eq!(size(E810, 1, 2, 39), (512, 1, 256, 127));
    assert_eq!(size(E810, 1, 3, 0), (512, 2, 128, 63));
    assert_eq!(size(E810, 1, 6, 101), (512, 2, 128, 63));
    assert_eq!(size(E810, 1, 7, 0), (512, 3, 64, 31));
    assert_eq!(size(E810, 127, 1, 0), (512, 1, 256, 127));
    assert_eq!(size(E810, 128, 1, 0), (1024, 1, 512, 383));
    let legacy = DeviceLimits::legacy(5);
    assert_eq!(size(legacy, 1, 1, 16), (512, 0, 512, 254));
    assert_eq!(size(legacy, 1, 3, 48), (512, 1, 256, 127));
}

#[test]
fn the_largest_send_queue_depends_on_the_wqe() {
    for (fragments, shift) in [(0, 0), (1, 1), (3, 2), (13, 3)] {
        let most = (32768 - 258) >> shift;
        let size = E810.send_queue(most, fragments, 0).unwrap();
        assert_eq!((size.quanta, size.usable_entries()), (32768, most));
        assert_eq!(
            E810.send_queue(most + 1, fragments, 0),
            Err(LimitExceeded {
                quantity: Quantity::SendRequests,
                asked: u64::from(most) + 1,
                limit: most.into(),
            })
        );
    }
    assert_eq!(E810.send_queue(u32::MAX, 0, 0).unwrap_err().quantity, Quantity::SendRequests);
}

#[test]
fn receive_queues() {
    let size = |limits: DeviceLimits, requests, fragments| {
        let size = limits.receive_queue(requests, fragments).unwrap();
        (size.quanta, size.shift, size.usable_entries())
    };
    assert_eq!(size(E810, 0, 0), (8, 0, 7));
    assert_eq!(size(E810, 7, 1), (8, 0, 7));
    assert_eq!(size(E810, 8, 1), (16, 0, 15));
    assert_eq!(size(E810, 100, 3), (256, 1, 127));
    assert_eq!(size(E810, 1, 13), (64, 3, 7));
    // GEN1 has one size of receive WQEs since ABI 5.
    assert_eq!(size(DeviceLimits::legacy(5), 1, 1), (16, 2, 3));
    assert_eq!(size(DeviceLimits::legacy(4), 1, 1), (4, 0, 3));
    assert_eq!(E810.receive_queue(32768, 1).unwrap_err().limit, 32767);
}

#[test]
fn shared_receive_queues() {
    let size = E2000.shared_receive_queue(1000, 3).unwrap();
    assert_eq!((size.quanta, size.shift, size.usable_entries()), (2048, 1, 1023));
    assert_eq!(E2000.shared_fragments(size), 3);
    let size = E2000.shared_receive_queue(1, 14).unwrap();
    assert_eq!(E2000.shared_fragments(size), 14);
    assert_eq!(E810.shared_receive_queue(1, 1).unwrap_err().quantity, Quantity::SharedRequests);
}

#[test]
fn too_much_is_named() {
    let refused = |result: Result<WorkQueueSize, LimitExceeded>| {
        let exceeded = result.unwrap_err();
        (exceeded.quantity.name(), exceeded.asked, exceeded.limit)
    };
    assert_eq!(refused(E810.send_queue(1, 14, 0)), ("max_send_sge", 14, 13));
    assert_eq!(refused(E810.send_queue(1, 1, 220)), ("max_inline_data", 220, 101));
    assert_eq!(refused(E810.receive_queue(1, 14)), ("max_recv_sge", 14, 13));
    assert_eq!(refused(E2000.shared_receive_queue(1, 15)), ("max_sge", 15, 14));
}

#[test]
fn completion_queues() {
    let slots = |limits: DeviceLimits, entries| limits.completion_queue(entries).unwrap().slots;
    assert_eq!([1, 2, 3, 100].map(|n| slots(E810, n)), [4, 6, 8, 202]);
    assert_eq!([1, 2, 3, 4, 100].map(|n| slots(E2000, n)), [4, 4, 6, 6, 102]);
    assert_eq!(slots(DeviceLimits::legacy(5), 100), 102);
    for limits in [E810, E2000, DeviceLimits::legacy(5)] {
        let most = limits.max_completion_entries();
        assert!(slots(limits, most) <= limits.max_completion_slots);
        for entries in [0, most + 1, u32::MAX] {
            let exceeded = limits.completion_queue(entries).unwrap_err();
            assert_eq!((exceeded.asked, exceeded.limit), (entries.into(), most.into()));
        }
    }
    // Never one page.
    assert_eq!([60, 61, 62, 63, 64].map(|n| slots(E2000, n)), [62, 66, 66, 66, 66]);
    let narrow = DeviceLimits { features: Features::empty(), ..E2000 };
    assert_eq!([61, 62, 63].map(|n| slots(narrow, n)), [126, 130, 130]);
    assert_eq!([62, 63, 64].map(|n| slots(E810, n)), [126, 128, 130]);
    assert_eq!(E810.max_completion_entries(), 524_286);
    assert_eq!(E2000.max_completion_entries(), 1_048_572);
    assert_eq!(E810.completion_queue(100).unwrap().bytes(), 8192);
    assert_eq!(E2000.completion_queue(100).unwrap().bytes(), 8192);
}

#[test]
fn answers_of_the_kernel() {
    let size = E810.send_queue(1, 1, 0).unwrap();
    assert_eq!(size.answered(256), Some(size));
    for wrong in [0, 1, 128, 255, 257, 512, u32::MAX] {
        assert_eq!(size.answered(wrong), None, "{wrong}");
    }
    let receive = E810.receive_queue(7, 1).unwrap();
    assert_eq!(receive.answered(8), Some(receive));
    assert_eq!(receive.answered(4).unwrap().quanta, 4);
    assert_eq!([0, 1, 16].map(|answer| receive.answered(answer)), [None; 3]);
    // One WQE stays free, of whatever size.
    let wide = E810.receive_queue(7, 13).unwrap();
    assert_eq!([0, 1].map(|answer| wide.answered(answer)), [None; 2]);
    assert_eq!(wide.answered(2).unwrap().usable_entries(), 1);
    let long = E810.send_queue(200, 13, 0).unwrap();
    assert!((0..32).filter_map(|bit| long.answered(1 << bit)).all(|size| size.usable_entries() > 0));
}

#[test]
fn parts_of_a_queue_pair() {
    let send = E810.send_queue(1, 1, 0).unwrap();
    let receive = E810.receive_queue(1, 1).unwrap();
    let memory = QueuePairMemory::new(send, receive);
    assert_eq!(memory, QueuePairMemory { receive: 16384, shadow: 20480, bytes: 20544 });
}
