package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A layer is what a job's setup wrote over a template, in a jail in which
// nothing else ran. The workspaces of all jobs with the same setup show it
// between the template and what they write themselves. It never changes after
// it has its name, and it stays while somebody holds it.
//
//	bases/<commit>/layers/<key>/       files, and layer.json, which is written last
//	bases/<commit>/layers/<key>.new/   being made, by who holds the lock
//	bases/<commit>/layers/<key>.lock   not empty: whoever tried last could not
type layer struct {
	dir  string
	lock *disk.Lock // shared
}

// files is the directory of what setup wrote; "" for no layer.
func (l *layer) files() string {
	if l == nil {
		return ""
	}
	return layerFiles(l.dir)
}

func (l *layer) release() error {
	if l == nil {
		return nil
	}
	return l.lock.Release()
}

func layerFiles(dir string) string { return filepath.Join(dir, "files") }

// A layerInfo is what is written beside a layer's files.
type layerInfo struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"` // that setup took
}

const layerInfoFile = "layer.json"

// readLayer returns an error unless there is a layer, whole.
func readLayer(dir string) (layerInfo, error) {
	var info layerInfo
	data, err := os.ReadFile(filepath.Join(dir, layerInfoFile))
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	return info, err
}

func (b *base) layers() string { return filepath.Join(b.dir, "layers") }

// Setup brings into the workspace what run writes. Whoever calls it with the
// same key for the same commit gets what one of them made, and waits for that;
// an empty key makes it for this workspace alone, and so does a clone, or a
// workspace that somebody has seen. run is called with the workspace that its
// jails must show, and with no other. Setup returns how long the run took that
// it took over, and whether it did; an error of run as it is.
//
// Where run fails, what it wrote is in the workspace, as if there were no
// others; the next one tries again.
func (w *Workspace) Setup(ctx context.Context, key string, run func(context.Context, *Workspace) error) (took time.Duration, reused bool, err error) {
	if key == "" || !w.over || w.shown {
		return 0, false, run(ctx, w)
	}
	dir := filepath.Join(w.base.layers(), key)
	if err := os.MkdirAll(w.base.layers(), 0o700); err != nil {
		return 0, false, err
	}
	held, info, err := w.spaces.awaitLayer(ctx, dir)
	switch {
	case err != nil:
		return 0, false, err
	case held == nil:
		return 0, false, run(ctx, w)
	case info != nil:
		return time.Duration(info.Seconds * float64(time.Second)), true, w.put(&layer{dir, held})
	}
	return 0, false, w.makeLayer(ctx, dir, held, run)
}

// put puts a layer below a workspace in which nobody has written.
func (w *Workspace) put(l *layer) error {
	w.layer = l
	w.touched()
	return w.keep() // what the workspace will have means nothing without
}

// awaitLayer returns a layer, locked against removal, with what is known of it;
// or the right to make it; or neither, where somebody is trying again what
// could not be done before. To wait for that would cost each job the time of
// another one's failure.
func (s *Spaces) awaitLayer(ctx context.Context, dir string) (*disk.Lock, *layerInfo, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		l, info, err := openLayer(dir)
		if l != nil || err != nil {
			return l, info, err
		}
		l, err = disk.TryLock(dir+".lock", syscall.LOCK_EX)
		switch {
		case err == nil:
			if _, missing := readLayer(dir); missing == nil {
				if err := l.Release(); err != nil { // made between our two looks
					return nil, nil, err
				}
				continue
			}
			return l, nil, nil
		case !errors.Is(err, disk.ErrLocked):
			return nil, nil, err
		}
		if st, err := os.Stat(dir + ".lock"); err == nil && st.Size() > 0 {
			return nil, nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// openLayer returns a layer that is there, locked against removal, or nil.
func openLayer(dir string) (*disk.Lock, *layerInfo, error) {
	if _, err := os.Lstat(dir); err != nil {
		return nil, nil, nil
	}
	l, err := disk.TryLock(dir+".lock", syscall.LOCK_SH)
	if errors.Is(err, disk.ErrLocked) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	info, missing := readLayer(dir)
	if missing != nil {
		return nil, nil, l.Release() // evicted meanwhile, or damaged
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil { // for those who evict
		return nil, nil, errors.Join(err, l.Release())
	}
	return l, &info, nil
}

// makeLayer runs setup in a directory of its own. If it succeeds that becomes
// a layer, else the workspace's own.
func (w *Workspace) makeLayer(ctx context.Context, dir string, l *disk.Lock, run func(context.Context, *Workspace) error) error {
	fresh := dir + ".new"
	err := errors.Join(w.spaces.trash.Remove(ctx, fresh), w.spaces.trash.Remove(ctx, dir)) // the latter is damaged
	if err == nil {
		err = os.MkdirAll(layerFiles(fresh), 0o755)
	}
	if err != nil {
		return errors.Join(err, l.Release())
	}
	inside := &Workspace{spaces: w.spaces, id: w.id, dir: layerFiles(fresh), over: true, base: w.base}
	began := time.Now()
	failed := run(ctx, inside)
	if failed == nil {
		if err = publishLayer(fresh, dir, time.Since(began)); err == nil {
			return errors.Join(l.Share(), w.put(&layer{dir, l}))
		}
		w.leftover(err) // this job can use it all the same
	}
	err = nil
	if ctx.Err() == nil {
		// Nobody shall wait for the next who tries.
		_, err = l.File.WriteAt([]byte("could not be made\n"), 0)
	}
	return errors.Join(failed, err, w.adopt(ctx, fresh), l.Release())
}

// publishLayer gives a layer its name, when all of it is on the disk: a kill
// or a power cut leaves it whole, or without its name.
func publishLayer(fresh, dir string, took time.Duration) error {
	size, err := seal(layerFiles(fresh))
	if err != nil {
		return err
	}
	data, err := json.Marshal(layerInfo{Bytes: size, Seconds: took.Seconds()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, layerInfoFile), data, 0o600); err != nil {
		return err
	}
	if err := disk.Sync(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// adopt makes what setup wrote in a directory of its own the workspace's own.
func (w *Workspace) adopt(ctx context.Context, fresh string) error {
	w.touched()
	if err := os.Remove(w.dir); err != nil {
		return err
	}
	err := os.Rename(layerFiles(fresh), w.dir)
	return errors.Join(err, w.spaces.trash.Remove(context.WithoutCancel(ctx), fresh))
}

// seal measures what setup wrote. It refuses what cannot be read as it is: to
// collect such a file its mode must be changed, and a layer never is.
func seal(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		need := fs.FileMode(0)
		switch {
		case d.IsDir():
			need = 0o500
		case info.Mode().IsRegular():
			need, size = 0o400, size+info.Size()
		}
		if info.Mode()&need != need {
			return &fs.PathError{Op: "share what setup wrote", Path: name, Err: fs.ErrPermission}
		}
		return nil
	})
	return size, err
}
