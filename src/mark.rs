//! What tells this plugin's file from others of its name: an ELF note, for `irdma-check`.

use rdma_core_sys::LAYOUT;

/// Of the note's content: the number of the layout, and the version as text up to a zero.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An ELF note: lengths of the owner's name and of the content, a type, and both.
#[repr(C)]
struct Note {
    owner_bytes: u32,
    content_bytes: u32,
    kind: u32,
    owner: [u8; 16],
    layout: u32,
    version: [u8; 16],
}

#[used]
#[unsafe(link_section = ".note.irdma")]
static NOTE: Note = Note {
    owner_bytes: 15,
    content_bytes: 20,
    kind: 1,
    owner: *b"irdma-provider\0\0",
    layout: LAYOUT.number,
    version: {
        let mut text = [0; 16];
        let mut at = 0;
        while at < VERSION.len() {
            text[at] = VERSION.as_bytes()[at];
            at += 1;
        }
        assert!(at < text.len());
        text
    },
};
