package wal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes the blocks of a file up to size from the file system, so that
// writing them through a mapping cannot find the disk full.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return errNoAllocate
		default:
			return err
		}
	}
}

// punch gives the blocks from a byte on back to the file system.
func punch(f *os.File, from, size int64) error {
	from = (from + 4095) &^ 4095
	if from >= size {
		return nil
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, size-from)
}

// blank reports whether the file holds no data from a byte on.
func blank(f *os.File, from int64) bool {
	_, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO)
}

// startWriting has the kernel begin to write a part of a file to the disk, so
// that the sync that follows finds less to do.
func startWriting(f *os.File, from, to int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, to-from, unix.SYNC_FILE_RANGE_WRITE) // advice only
}

// openToSync opens a file that is written through a mapping, for syncData.
func openToSync(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// syncData makes durable what was written to a file, also through mappings, and as
// much about it as reading that needs.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync "+f.Name(), err)
		}
	}
}

// networks are network file systems by the magic number of statfs. FUSE is not
// among them: it may be local, and the probe decides.
var networks = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "nfs",
	unix.SMB_SUPER_MAGIC:  "smb",
	unix.SMB2_SUPER_MAGIC: "smb",
	unix.CIFS_SUPER_MAGIC: "cifs",
	unix.CEPH_SUPER_MAGIC: "ceph",
	unix.AFS_SUPER_MAGIC:  "afs",
	unix.AFS_FS_MAGIC:     "afs",
	unix.CODA_SUPER_MAGIC: "coda",
	unix.NCP_SUPER_MAGIC:  "ncp",
	unix.V9FS_MAGIC:       "9p",
	0x0bd00bd0:            "lustre",
}

// networkOf names the network file system that dir is on, or returns "".
func networkOf(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return networks[uint32(s.Type)], nil
}

// locals are other file systems, for messages.
var locals = map[uint32]string{
	unix.EXT4_SUPER_MAGIC: "ext2, ext3 or ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.FUSE_SUPER_MAGIC: "fuse", 0x2fc12fc1: "zfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs",
}

// fileSystemOf names the file system that dir is on.
func fileSystemOf(dir string) (name string, network, volatile bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "unknown", false, false
	}
	magic := uint32(s.Type)
	if name = networks[magic]; name != "" {
		return name, true, false
	}
	if name = locals[magic]; name == "" {
		name = fmt.Sprintf("type %#x", magic)
	}
	return name, false, magic == unix.TMPFS_MAGIC || magic == unix.RAMFS_MAGIC
}
