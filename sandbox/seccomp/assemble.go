package seccomp

import "fmt"

// The parts of classic BPF that filters use.
const (
	opLoad    = 0x20 // load a word of the call's description
	opEqual   = 0x15
	opAtLeast = 0x35
	opAnyBit  = 0x45
	opReturn  = 0x06
	opAnd     = 0x54
)

// Offsets into the kernel's struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

const (
	killProcess = 0x80000000
	allow       = 0x7fff0000
	returnErrno = 0x00050000
	x32Bit      = 0x40000000
)

var auditArch = map[Arch]uint32{AMD64: 0xc000003e, ARM64: 0xc00000b7}

type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
	call   string // whose number is compared; for listings
}

func load(offset uint32) instruction { return instruction{code: opLoad, jt: 0, jf: 0, k: offset} }
func ret(action uint32) instruction  { return instruction{code: opReturn, jt: 0, jf: 0, k: action} }
func jumpEqual(k uint32, t, f uint8) instruction {
	return instruction{code: opEqual, jt: t, jf: f, k: k}
}
func jumpAtLeast(k uint32, t, f uint8) instruction {
	return instruction{code: opAtLeast, jt: t, jf: f, k: k}
}
func jumpAnyBit(k uint32, t, f uint8) instruction {
	return instruction{code: opAnyBit, jt: t, jf: f, k: k}
}

// argument loads the low word of an argument: both architectures are
// little-endian.
func argument(n uint32) instruction { return load(offsetArgs + 8*n) }

func fail(errno uint32) uint32 { return returnErrno | errno }

func (i instruction) text(at int) string {
	jump := func(test string) string {
		return fmt.Sprintf("if %s goto %03d else %03d", test, at+1+int(i.jt), at+1+int(i.jf))
	}
	switch i.code {
	case opLoad:
		switch i.k {
		case offsetNumber:
			return "load number"
		case offsetArch:
			return "load arch"
		}
		return fmt.Sprintf("load low(args[%d])", (i.k-offsetArgs)/8)
	case opEqual:
		if i.call != "" {
			return jump(fmt.Sprintf("== %d (%s)", i.k, i.call))
		}
		return jump(fmt.Sprintf("== %#x", i.k))
	case opAnd:
		return fmt.Sprintf("and %#x", i.k)
	case opAtLeast:
		return jump(fmt.Sprintf(">= %#x", i.k))
	case opAnyBit:
		return jump(fmt.Sprintf("& %#x", i.k))
	}
	switch {
	case i.k == allow:
		return "allow"
	case i.k == killProcess:
		return "kill process"
	}
	return fmt.Sprintf("fail errno %d", i.k&0xffff)
}
