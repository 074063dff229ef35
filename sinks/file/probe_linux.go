package file

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/walsink/walsink/sinks"
)

// kinds are file systems by the magic number of statfs. A local one, also one that
// is not listed, is taken at its word.
var kinds = map[uint32]struct{ name, weak string }{
	unix.EXT4_SUPER_MAGIC:      {"ext2, ext3 or ext4", ""},
	unix.XFS_SUPER_MAGIC:       {"xfs", ""},
	unix.BTRFS_SUPER_MAGIC:     {"btrfs", ""},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", ""},
	0x2fc12fc1:                 {"zfs", ""},
	unix.TMPFS_MAGIC:           {"tmpfs", "its contents, the ledger with them, do not survive a reboot; use a disk"},
	unix.RAMFS_MAGIC:           {"ramfs", "its contents, the ledger with them, do not survive a reboot; use a disk"},
	unix.NFS_SUPER_MAGIC:       {"nfs", network},
	unix.SMB_SUPER_MAGIC:       {"smb", network},
	unix.SMB2_SUPER_MAGIC:      {"smb2", network},
	unix.CIFS_SUPER_MAGIC:      {"cifs", network},
	unix.CEPH_SUPER_MAGIC:      {"ceph", network},
	unix.AFS_SUPER_MAGIC:       {"afs", network},
	unix.V9FS_MAGIC:            {"9p", network},
	unix.FUSE_SUPER_MAGIC:      {"fuse", "a program decides what fsync and rename do there; use a local file system"},
	unix.MSDOS_SUPER_MAGIC:     {"fat", "it has no journal and no hard links; use another file system"},
}

const network = "caches and retried calls make a rename's answer unreliable there; use a local file system"

// lowSpace is the free space below which the probe says something.
const lowSpace = 1 << 30

func (s *Sink) fileSystem() []sinks.Finding {
	d, err := s.fs.root.Open(".")
	if err != nil {
		return []sinks.Finding{finding("file system", err, "give this user permission to read the directory")}
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return []sinks.Finding{finding("file system", err, "")}
	}
	return []sinks.Finding{kindOf(uint32(st.Type)), freeSpace(st.Bavail*uint64(st.Bsize), st.Ffree)}
}

func kindOf(magic uint32) sinks.Finding {
	f := sinks.Finding{Subject: "file system", Found: fmt.Sprintf("type %#x", magic), Guarantee: sinks.ExactlyOnce}
	if k, ok := kinds[magic]; ok {
		f.Found = k.name
		if k.weak != "" {
			f.Guarantee, f.Advice = sinks.AtLeastOnce, k.weak
		}
	}
	return f
}

func freeSpace(bytes, inodes uint64) sinks.Finding {
	f := sinks.Finding{Subject: "free space", Guarantee: sinks.ExactlyOnce, Found: fmt.Sprintf("%d MiB, %d inodes", bytes>>20, inodes)}
	if bytes < lowSpace {
		f.Advice = "make space: a full disk stops the flush, nothing is lost"
	}
	return f
}
