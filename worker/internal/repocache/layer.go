package repocache

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

// A Layer is the files that a job's setup wrote over a template, in a jail in which
// nothing else ran. The workspaces of all jobs with the same setup show it between the
// template and their own files. It never changes after it has its name, and it stays
// while it is held.
//
//	bases/<commit>/layers/<key>/       files, and layer.json, which is written last
//	bases/<commit>/layers/<key>.new/   being made, by the holder of the lock
//	bases/<commit>/layers/<key>.lock   not empty: the last try failed
type Layer struct {
	Dir  string
	lock *disk.Lock    // shared
	Took time.Duration // that setup took
}

// Files is the directory of what setup wrote; "" for no layer.
func (l *Layer) Files() string {
	if l == nil {
		return ""
	}
	return layerFiles(l.Dir)
}

// LayerAt is the layer in a directory, which is not held yet.
func LayerAt(dir string) *Layer { return &Layer{Dir: dir} }

// Hold keeps a layer from being removed, as its maker did.
func (l *Layer) Hold(ctx context.Context) (err error) {
	l.lock, err = disk.WaitLock(ctx, l.Dir+".lock", syscall.LOCK_SH)
	return err
}

func (l *Layer) Release() error {
	if l == nil {
		return nil
	}
	return l.lock.Release()
}

func layerFiles(dir string) string { return filepath.Join(dir, "files") }

// A layerInfo is stored beside a layer's files.
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

func (b *Base) layers() string { return filepath.Join(b.Dir, "layers") }

// Layer returns the layer of that key, locked against removal; or the right to make it;
// or neither, if another job is retrying a setup that failed before. To wait for that
// would cost each job the time of another one's failure.
func (b *Base) Layer(ctx context.Context, key string) (*Layer, *LayerMaker, error) {
	if err := os.MkdirAll(b.layers(), 0o700); err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(b.layers(), key)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if l, err := openLayer(dir); l != nil || err != nil {
			return l, nil, err
		}
		l, err := disk.TryLock(dir+".lock", syscall.LOCK_EX)
		switch {
		case err == nil:
			if _, missing := readLayer(dir); missing == nil {
				if err := l.Release(); err != nil { // made between our two looks
					return nil, nil, err
				}
				continue
			}
			return nil, &LayerMaker{dir: dir, directories: filepath.Join(b.template(), directoriesFile), lock: l, trash: b.mirror.cache.cfg.Trash}, nil
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
func openLayer(dir string) (*Layer, error) {
	if _, err := os.Lstat(dir); err != nil {
		return nil, nil
	}
	l, err := disk.TryLock(dir+".lock", syscall.LOCK_SH)
	if errors.Is(err, disk.ErrLocked) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, missing := readLayer(dir)
	if missing != nil {
		return nil, l.Release() // evicted meanwhile, or damaged
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil { // for eviction
		return nil, errors.Join(err, l.Release())
	}
	return &Layer{Dir: dir, lock: l, Took: time.Duration(info.Seconds * float64(time.Second))}, nil
}

// A LayerMaker has the right to make a layer: the lock of its name.
//
//	begin ──▶ setup writes ──▶ publish ──▶ a layer
//	                              └──▶ giveUp
type LayerMaker struct {
	dir   string
	lock  *disk.Lock
	trash *disk.Trash
	// directories is the list of the template's, if it has a monitor.
	directories string
}

func (m *LayerMaker) fresh() string { return m.dir + ".new" }

// Begin makes the directory that setup writes in. Its error ends the right.
func (m *LayerMaker) Begin(ctx context.Context) (dir string, err error) {
	err = errors.Join(m.trash.Remove(ctx, m.fresh()), m.trash.Remove(ctx, m.dir)) // the latter is damaged
	if err == nil {
		err = os.MkdirAll(layerFiles(m.fresh()), 0o755)
	}
	if err != nil {
		return "", errors.Join(err, m.lock.Release())
	}
	return layerFiles(m.fresh()), nil
}

// Publish gives a layer its name. Without a layer what setup wrote is where it was, and so
// is the right.
func (m *LayerMaker) Publish(took time.Duration) (*Layer, error) {
	size, err := seal(layerFiles(m.fresh()))
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(layerInfo{Bytes: size, Seconds: took.Seconds()})
	if err != nil {
		return nil, err
	}
	if err := m.monitor(); err != nil {
		// The layer is whole without, and its jobs have no monitor.
		if err := os.RemoveAll(filepath.Join(m.fresh(), directoriesFile)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(m.fresh(), layerInfoFile), data, 0o600); err != nil {
		return nil, err
	}
	if err := publish(m.fresh(), m.dir); err != nil {
		return nil, err
	}
	return &Layer{Dir: m.dir, lock: m.lock, Took: took}, m.lock.Share()
}

// GiveUp ends the right, and moves what setup wrote in place of the empty
// directory at to.
func (m *LayerMaker) GiveUp(ctx context.Context, to string) error {
	var err error
	if ctx.Err() == nil {
		// No job shall wait for the next one that tries.
		_, err = m.lock.File.WriteAt([]byte("could not be made\n"), 0)
	}
	return errors.Join(err, m.moveTo(ctx, to), m.lock.Release())
}

func (m *LayerMaker) moveTo(ctx context.Context, to string) error {
	if err := os.Remove(to); err != nil {
		return err
	}
	err := os.Rename(layerFiles(m.fresh()), to)
	return errors.Join(err, m.trash.Remove(context.WithoutCancel(ctx), m.fresh()))
}

// seal measures the files of setup. It refuses files that cannot be read as they are:
// to collect one its mode must be changed, and a layer never changes.
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
