package gitmonitor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
)

// directories are the inode numbers of directories, by their names from the workspace.
type directories map[string]uint64

var errDirectories = errors.New("the list of directories is damaged")

// read adds what [Directories] has listed in a file. A name that is there takes the new
// number.
func (d directories) read(file string) error {
	list, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return d.add(list)
}

func (d directories) add(list []byte) error {
	for len(list) > 0 {
		line, rest, whole := bytes.Cut(list, []byte{0})
		number, name, parted := bytes.Cut(line, []byte(" "))
		inode, err := strconv.ParseUint(string(number), 10, 64)
		if !whole || !parted || err != nil {
			return errDirectories
		}
		d[string(name)], list = inode, rest
	}
	return nil
}

// Directories lists the directories of layers, the uppermost first, with their inode
// numbers: the view over them shows the number of the uppermost one of each name. It begins
// with the first layer itself, whose name is empty.
func Directories(layers []string) ([]byte, error) {
	var list []byte
	seen := map[string]bool{}
	for _, layer := range layers {
		if err := each(layer, "", func(name string, inode uint64) {
			if !seen[name] {
				seen[name] = true
				list = strconv.AppendUint(list, inode, 10)
				list = append(append(append(list, ' '), name...), 0)
			}
		}); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Lists reports whether a file lists the directories of that first layer: those of a copy
// elsewhere have other numbers.
func Lists(file, layer string) bool {
	st, err := lstat(layer)
	if err != nil {
		return false
	}
	want := append(strconv.AppendUint(nil, st.Ino, 10), ' ', 0)
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	got := make([]byte, len(want))
	_, err = io.ReadFull(f, got)
	return err == nil && bytes.Equal(got, want)
}

// each calls found for a directory of a layer and those below it, but for the one of git. It
// walks by itself, since package filepath needs packages that are initialised late.
func each(layer, name string, found func(name string, inode uint64)) error {
	st, err := lstat(layer + "/" + name)
	if err != nil {
		return err
	}
	found(name, st.Ino)
	entries, err := os.ReadDir(layer + "/" + name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		below := e.Name()
		if name != "" {
			below = name + "/" + below
		}
		if !e.IsDir() || below == ".git" {
			continue
		}
		if err := each(layer, below, found); err != nil {
			return err
		}
	}
	return nil
}
