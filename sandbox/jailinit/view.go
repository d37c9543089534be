package jailinit

import "strconv"

// A Mount is one thing that a view shows. They are made in order, parents
// before children; directories between are made as needed.
type Mount struct {
	Kind     Kind
	Target   string // where the agent sees it
	Source   string // what KindBind shows, in the view that the mechanism gave; what KindLink points to
	Data     []byte // of KindFile
	Mode     uint32 // permissions of KindFile and KindMemory
	Size     int64  // bytes of KindMemory
	Writable bool   // of KindBind
}

// A Kind says how a Place is made.
type Kind string

// The kinds of places.
const (
	KindBind    Kind = "bind"
	KindFile    Kind = "file" // read-only, wherever it is
	KindLink    Kind = "link"
	KindMemory  Kind = "memory"  // an empty file system of the given size
	KindProc    Kind = "proc"    // the processes of the jail
	KindDevices Kind = "devices" // the harmless ones
	KindMask    Kind = "mask"    // nothing, over something that is there
	KindFreeze  Kind = "freeze"  // read-only what is there
)

// fields and place are the way of a Place through a Config.
func (p Mount) fields() []string {
	return []string{
		string(p.Kind), p.Target, p.Source, string(p.Data),
		strconv.FormatUint(uint64(p.Mode), 8), strconv.FormatInt(p.Size, 10), strconv.FormatUint(flag(p.Writable), 10),
	}
}

const mountFields = 7

func decodeMounts(l []string) ([]Mount, error) {
	if len(l)%mountFields != 0 {
		return nil, errConfig
	}
	var view []Mount
	for ; len(l) > 0; l = l[mountFields:] {
		mode, errMode := strconv.ParseUint(l[4], 8, 32)
		size, errSize := strconv.ParseInt(l[5], 10, 64)
		if errMode != nil || errSize != nil {
			return nil, errConfig
		}
		p := Mount{Kind: Kind(l[0]), Target: l[1], Source: l[2], Mode: uint32(mode), Size: size, Writable: l[6] == "1"}
		if l[3] != "" {
			p.Data = []byte(l[3])
		}
		view = append(view, p)
	}
	return view, nil
}
