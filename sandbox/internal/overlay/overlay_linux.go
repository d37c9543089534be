package overlay

import (
	"errors"
	"os"
	"path"
	"syscall"
)

// Prepare recreates the directories that the mounts need. What an earlier mount left
// in the work directory is of no use. The mark of a volatile mount that did not end is
// among it, and would make the kernel refuse the next mount.
func (v View) Prepare() error {
	err := v.Remove()
	for _, dir := range []string{v.Work, v.Alone} {
		if err == nil && dir != "" {
			err = os.Mkdir(dir, 0o700)
		}
	}
	return os.NewSyscallError("overlay", err)
}

// Remove removes the directories that the mounts needed, after these are gone.
func (v View) Remove() error {
	if v.Alone != "" {
		// The thread that mounted may be this one. Elsewhere there is no mount.
		_ = syscall.Unmount(v.Alone, syscall.MNT_DETACH|umountNoFollow)
		if err := os.Remove(v.Alone); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if v.Work == "" {
		return nil
	}
	// The kernel makes directories of mode 000 in it, one in the other.
	for _, dir := range []string{"work", "work/incompat", "work/incompat/volatile"} {
		err := os.Chmod(path.Join(v.Work, dir), 0o700)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(v.Work)
}

// MountAlone takes the calling thread into a mount namespace of its own and
// mounts the view there. The thread must be locked and end afterwards: it and
// what it starts are the only ones that see the view, and the kernel removes
// it with the last of them.
func (v View) MountAlone(target string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS | syscall.CLONE_FS); err != nil {
		return os.NewSyscallError("overlay: a mount namespace", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("overlay: private mounts", err)
	}
	return v.Mount(target, false)
}

const (
	readOnly       = 1 // ST_RDONLY
	umountNoFollow = 8 // UMOUNT_NOFOLLOW
)

// Mount mounts the view on target in the caller's mount namespace. A user who
// owns the namespace, but is not root of the host, says so.
func (v View) Mount(target string, user bool) error {
	options, err := v.options(user)
	if err != nil {
		return err
	}
	if v.Alone != "" {
		if err := syscall.Mount(v.top(), v.Alone, "", syscall.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "overlay: show alone on", Path: v.Alone, Err: err}
		}
	}
	if err := syscall.Mount("penstock", target, "overlay", syscall.MS_NOSUID|syscall.MS_NODEV, options); err != nil {
		return &os.PathError{Op: "overlay: mount on", Path: target, Err: err}
	}
	if v.Upper == "" {
		return nil
	}
	var st syscall.Statfs_t
	// Where the work directory cannot be used the kernel mounts the view all
	// the same, and says only in its log that nothing can be written.
	if err := syscall.Statfs(target, &st); err != nil {
		return os.NewSyscallError("overlay", err)
	}
	if st.Flags&readOnly != 0 {
		return os.NewSyscallError("overlay: "+v.Upper+" cannot take what is written", syscall.EROFS)
	}
	return nil
}
