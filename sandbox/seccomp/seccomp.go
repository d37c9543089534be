// Package seccomp compiles a list of system calls into a filter that the
// kernel runs before each of them.
//
// The list names what fails; everything else works. It takes away what no
// coding agent, compiler or package manager needs and what most local
// privilege bugs of the kernel begin with. It is not the wall around files
// and networks: that is what the jail can see.
//
// Arguments are compared by their low 32 bits only, as the kernel reads them:
// a comparison of all 64 lets a caller hide a value behind a high bit.
// The numbers of both architectures stand in one table, and no library and no
// C is involved.
package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
)

// An Arch is a machine that filters can be made for, in Go's words.
type Arch string

// The architectures.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// Native returns the architecture of this program.
func Native() Arch { return Arch(runtime.GOARCH) }

// Options loosen or tighten a filter. The zero value is the one for agents.
type Options struct {
	Namespaces bool // new namespaces and chroot work, as a browser's own sandbox needs; mounting still fails
	Trace      bool // tracing of own processes works
	NoUnix     bool // no unix socket can be made; for views that show sockets of the host
}

// Filter returns the filter as the kernel's struct sock_filter, one after
// another, in the byte order of the architecture.
func Filter(arch Arch, o Options) ([]byte, error) {
	p, err := compile(arch, o)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 8*len(p))
	for _, i := range p {
		b = binary.LittleEndian.AppendUint16(b, i.code)
		b = append(b, i.jt, i.jf)
		b = binary.LittleEndian.AppendUint32(b, i.k)
	}
	return b, nil
}

// List returns a readable listing of the filter, one instruction a line.
func List(arch Arch, o Options) (string, error) {
	p, err := compile(arch, o)
	if err != nil {
		return "", err
	}
	s := ""
	for n, i := range p {
		s += fmt.Sprintf("%03d  %s\n", n, i.text(n))
	}
	return s, nil
}

func compile(arch Arch, o Options) ([]instruction, error) {
	audit, ok := auditArch[arch]
	if !ok {
		return nil, fmt.Errorf("seccomp: no filter for architecture %q", arch)
	}
	p := []instruction{
		load(offsetArch),
		jumpEqual(audit, 1, 0),
		// Not an error: a 32-bit call has other numbers, so no rule below
		// would mean what it says.
		ret(killProcess),
		load(offsetNumber),
	}
	if arch == AMD64 {
		p = append(p, jumpAtLeast(x32Bit, 0, 1), ret(fail(enosys)))
	}
	for _, r := range rules(o) {
		n := numbers[r.call].of(arch)
		if n < 0 {
			continue // this architecture never had the call
		}
		block := r.block
		if len(block) > 255 {
			return nil, fmt.Errorf("seccomp: %s: %d instructions are more than a jump can pass", r.call, len(block))
		}
		test := jumpEqual(uint32(n), 0, uint8(len(block)))
		test.call = r.call
		p = append(p, test)
		p = append(p, block...)
	}
	return append(p, ret(allow)), nil
}
