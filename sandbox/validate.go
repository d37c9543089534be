package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"strings"
)

// reserved lists places inside that the jail makes itself. A mount there, or
// a file, would undo a protection, or leave its mount point on the host.
var reserved = []string{"/proc", "/sys", "/dev", "/jail", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", WorkspacePath}

// Validate reports the first field that no backend can use. It looks at the
// values only, never at the host.
func (s Spec) Validate() error {
	for _, check := range []func() error{s.validateCommand, s.validatePlaces, s.validateNetwork, s.validateLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) validateCommand() error {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return &FieldError{"Args", "", "names no program"}
	}
	for i, a := range s.Args {
		if strings.ContainsRune(a, 0) {
			return &FieldError{fmt.Sprintf("Args[%d]", i), a, "contains a NUL"}
		}
	}
	for i, kv := range s.Env {
		field := fmt.Sprintf("Env[%d]", i)
		key, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || key == "":
			return &FieldError{field, key, "is not of the form K=V"}
		case strings.ContainsRune(kv, 0):
			return &FieldError{field, key, "contains a NUL"}
		}
	}
	for _, c := range s.Label {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-", c) {
			return &FieldError{"Label", s.Label, "has characters other than a-z, 0-9, dot and dash"}
		}
	}
	if len(s.Label) > 128 {
		return &FieldError{"Label", s.Label, "is longer than 128 bytes"}
	}
	switch s.Preset {
	case PresetStrict, PresetBrowser, PresetDebug, PresetOffline:
	default:
		return &FieldError{"Preset", string(s.Preset), "is not one of browser, debug, offline"}
	}
	return nil
}

func (s Spec) validatePlaces() error {
	if s.Dir != "" {
		if err := checkPath("Dir", s.Dir); err != nil {
			return err
		}
	}
	for field, dir := range map[string]string{"Workspace": s.Workspace, "Home": s.Home} {
		if dir == "" {
			continue
		}
		if err := checkPath(field, dir); err != nil {
			return err
		}
		if dir == "/" {
			return &FieldError{field, dir, "is the whole host"}
		}
	}
	if err := s.validateLower(); err != nil {
		return err
	}
	for i, m := range s.Mounts {
		field := fmt.Sprintf("Mounts[%d].", i)
		if err := checkPath(field+"Source", m.Source); err != nil {
			return err
		}
		if m.Source == "/" {
			return &FieldError{field + "Source", m.Source, "is the whole host"}
		}
		if err := s.checkTarget(field+"Target", m.Target); err != nil {
			return err
		}
	}
	for i, f := range s.Files {
		field := fmt.Sprintf("Files[%d].", i)
		if err := s.checkTarget(field+"Path", f.Path); err != nil {
			return err
		}
		if under(f.Path, "/usr") {
			return &FieldError{field + "Path", f.Path, "is in a directory that the host shares read-only"}
		}
		if f.Mode&^0o777 != 0 {
			return &FieldError{field + "Mode", f.Mode.String(), "has more than permission bits"}
		}
	}
	return nil
}

func (s Spec) validateLower() error {
	if len(s.Lower) > 0 && s.Workspace == "" {
		return &FieldError{"Workspace", "", "is needed: it takes the writes over Lower"}
	}
	for i, l := range s.Lower {
		if err := checkPath(fmt.Sprintf("Lower[%d]", i), l); err != nil {
			return err
		}
	}
	switch {
	case s.Upper == "":
		return nil
	case len(s.Lower) == 0:
		return &FieldError{"Upper", s.Upper, "needs Lower"}
	}
	return s.checkTarget("Upper", s.Upper)
}

// UpperSource is the directory of the host on which Start shows what is to be at Upper,
// to the mechanism of this jail alone; "" if nothing is.
func (s Spec) UpperSource() string {
	if s.Upper == "" {
		return ""
	}
	return s.Workspace + ".upper"
}

func (s Spec) validateNetwork() error {
	switch s.Network {
	case NetworkNone, NetworkGate, NetworkFull:
	default:
		return &FieldError{"Network", string(s.Network), "is not one of gate, full"}
	}
	if s.Preset == PresetOffline && s.Network != NetworkNone {
		return &FieldError{"Network", string(s.Network), "contradicts preset offline"}
	}
	if len(s.Listen) > 0 && s.Network != NetworkGate {
		return &FieldError{"Listen", s.Listen[0], "needs network gate"}
	}
	if len(s.Listen) > 16 {
		return &FieldError{"Listen", s.Listen[16], "is one listener too many; 16 are possible"}
	}
	for i, l := range s.Listen {
		if _, _, err := parseListen(l); err != nil {
			return &FieldError{fmt.Sprintf("Listen[%d]", i), l, err.Error()}
		}
	}
	return nil
}

// parseListen reads an element of Spec.Listen. The text of an error ends the
// sentence of a FieldError.
func parseListen(l string) (at netip.AddrPort, udp bool, err error) {
	rest, udp := strings.CutPrefix(l, "udp/")
	at, err = netip.ParseAddrPort(rest)
	a := at.Addr()
	switch {
	case err != nil:
		err = errors.New("is not an address and a port, such as 127.0.0.1:3128 or udp/127.0.0.1:53")
	case a.Zone() != "" || a.Is4In6() || !a.IsLoopback() && !a.IsUnspecified():
		err = errors.New("is not a loopback address, nor an unspecified one")
	case at.Port() == 0:
		err = errors.New("has no port")
	}
	return at, udp, err
}

func (s Spec) validateLimits() error {
	l := s.Limits
	for field, v := range map[string]float64{
		"Memory": float64(l.Memory), "CPUs": l.CPUs, "PIDs": float64(l.PIDs), "FileSize": float64(l.FileSize),
		"OpenFiles": float64(l.OpenFiles), "TmpSize": float64(l.TmpSize), "ShmSize": float64(l.ShmSize),
		"CPUWeight": float64(l.CPUWeight), "Disk": float64(l.Disk), "Inodes": float64(l.Inodes), "OutputRate": float64(l.OutputRate),
	} {
		if !(v >= 0) { // also refuses NaN
			return &FieldError{"Limits." + field, fmt.Sprint(v), "is negative"}
		}
	}
	if l.Memory != 0 && l.Memory < 1<<20 {
		return &FieldError{"Limits.Memory", fmt.Sprint(l.Memory), "is less than 1 MiB"}
	}
	if l.PIDs != 0 && l.PIDs < 8 {
		return &FieldError{"Limits.PIDs", fmt.Sprint(l.PIDs), "is less than 8, which no jail can start with"}
	}
	if l.CPUWeight > 10_000 {
		return &FieldError{"Limits.CPUWeight", fmt.Sprint(l.CPUWeight), "is more than 10000"}
	}
	if l.OpenFiles != 0 && l.OpenFiles < 16 {
		return &FieldError{"Limits.OpenFiles", fmt.Sprint(l.OpenFiles), "is less than 16"}
	}
	if s.Grace < 0 {
		return &FieldError{"Grace", s.Grace.String(), "is negative"}
	}
	return nil
}

// checkPath accepts absolute, clean paths. Dots would let a prefix check be
// fooled; a line break would let a path forge lines in lists and messages.
func checkPath(field, p string) error {
	switch {
	case !filepath.IsAbs(p):
		return &FieldError{field, p, "is not an absolute path"}
	case strings.ContainsAny(p, "\x00\n\r"):
		return &FieldError{field, p, "contains a NUL or a line break"}
	case filepath.Clean(p) != p:
		return &FieldError{field, p, "is not a clean path; use " + filepath.Clean(p)}
	}
	return nil
}

func (s Spec) checkTarget(field, p string) error {
	if !path.IsAbs(p) {
		return &FieldError{field, p, "is not an absolute path"}
	}
	if err := checkPath(field, p); err != nil {
		return err
	}
	for _, r := range reserved {
		if under(p, r) {
			return &FieldError{field, p, "is inside " + r + ", which the jail makes itself"}
		}
	}
	if p == "/" || p == "/usr" || p == "/etc" || p == "/home" || p == "/tmp" || p == HomePath {
		return &FieldError{field, p, "would hide a directory that the jail makes itself"}
	}
	if s.Home != "" && under(p, HomePath) {
		return &FieldError{field, p, "is inside a home of the host, where it would stay behind; put it there directly"}
	}
	return nil
}

func under(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}
