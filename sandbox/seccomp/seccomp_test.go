package seccomp

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestListingIsAsReviewed(t *testing.T) {
	for name, o := range map[string]Options{
		"strict": {}, "namespaces": {Namespaces: true}, "trace": {Trace: true}, "nounix": {NoUnix: true},
	} {
		for _, arch := range []Arch{AMD64, ARM64} {
			got, err := List(arch, o)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", fmt.Sprintf("%s-%s.txt", name, arch))
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%s differs, err %v; look at it with: go test ./sandbox/seccomp -update && git diff", golden, err)
			}
		}
	}
}

// The numbers of the table are those of the kernel, as x/sys has them for
// both architectures.
func TestNumbersAreTheKernels(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Skipf("the module cache cannot be asked: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	for _, arch := range []Arch{AMD64, ARM64} {
		kernel := readNumbers(t, filepath.Join(dir, "unix", "zsysnum_linux_"+string(arch)+".go"))
		for name, n := range numbers {
			want, ok := kernel[name]
			if !ok {
				want = -1
			}
			if got := n.of(arch); got != want {
				t.Errorf("%s on %s: got %d, want %d", name, arch, got, want)
			}
		}
	}
}

func readNumbers(t *testing.T, file string) map[string]int {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var name string
		var n int
		if _, err := fmt.Sscanf(strings.TrimSpace(s.Text()), "SYS_%s = %d", &name, &n); err == nil {
			m[strings.ToLower(name)] = n
		}
	}
	return m
}

// run interprets a filter as the kernel does.
func run(t *testing.T, p []instruction, arch Arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[0:], nr)
	binary.LittleEndian.PutUint32(data[4:], auditArch[arch])
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	a := uint32(0)
	for pc := 0; pc < len(p); pc++ {
		i := p[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(i.jt)
			} else {
				pc += int(i.jf)
			}
		}
		switch i.code {
		case opLoad:
			a = binary.LittleEndian.Uint32(data[i.k:])
		case opAnd:
			a &= i.k
		case opEqual:
			jump(a == i.k)
		case opAtLeast:
			jump(a >= i.k)
		case opAnyBit:
			jump(a&i.k != 0)
		case opReturn:
			return i.k
		default:
			t.Fatalf("instruction %d: unknown code %#x", pc, i.code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

const high = 1 << 32

// answers are what a filter says to a call with arguments.
var answers = []struct {
	call string
	o    Options
	args []uint64
	want uint32
}{
	{"mount", Options{}, nil, fail(eperm)},
	{"mount", Options{Namespaces: true}, nil, fail(eperm)},
	{"clone3", Options{}, nil, fail(enosys)},
	{"clone", Options{}, []uint64{17}, allow},
	{"clone", Options{}, []uint64{0x10000000}, fail(eperm)},
	{"clone", Options{}, []uint64{high | 0x20000}, fail(eperm)},
	{"clone", Options{Namespaces: true}, []uint64{0x10000000}, allow},
	{"unshare", Options{}, []uint64{0x80}, fail(eperm)},
	{"unshare", Options{}, []uint64{0x400}, allow},
	{"ptrace", Options{}, nil, fail(eperm)},
	{"ptrace", Options{Trace: true}, nil, allow},
	{"socket", Options{}, []uint64{afUnix, 1, 0}, allow},
	{"socket", Options{NoUnix: true}, []uint64{afUnix, 1, 0}, fail(eafnosupport)},
	{"socket", Options{NoUnix: true}, []uint64{high | afUnix, 1, 0}, fail(eafnosupport)},
	{"socket", Options{}, []uint64{high | 40, 1, 0}, fail(eafnosupport)},
	{"socket", Options{}, []uint64{afNetlink, 3, 0}, allow},
	{"socket", Options{}, []uint64{afNetlink, 3, 12}, fail(eafnosupport)},
	{"socket", Options{}, []uint64{afNetlink, 3, high | 9}, fail(eafnosupport)},
	{"socketpair", Options{}, []uint64{afUnix, 2, 0}, allow},
	{"socketpair", Options{}, []uint64{afInet, 1, 0}, fail(eafnosupport)},
	{"socketpair", Options{NoUnix: true}, []uint64{afUnix, 1 | 0o2000000, 0}, allow},
	{"socketpair", Options{NoUnix: true}, []uint64{afUnix, 2, 0}, fail(eafnosupport)},
	{"ioctl", Options{}, []uint64{0, tiocsti}, fail(eperm)},
	{"ioctl", Options{}, []uint64{0, high | tioclinux}, fail(eperm)},
	{"ioctl", Options{}, []uint64{0, 0x5401}, allow},
	{"openat", Options{}, []uint64{0, 0, 0o101, 0o644}, allow},
	{"openat", Options{}, []uint64{0, 0, 0o101, 0o4755}, fail(eperm)},
	{"openat", Options{}, []uint64{0, 0, 0, 0o4755}, allow},
	{"openat", Options{}, []uint64{0, 0, 0o20200000, 0o4755}, fail(eperm)},
	{"fchmodat", Options{}, []uint64{0, 0, 0o6755}, fail(eperm)},
	{"fchmod", Options{}, []uint64{0, 0o2755}, allow},
	{"personality", Options{}, []uint64{0xffffffff}, allow},
	{"personality", Options{}, []uint64{0x40000}, fail(eperm)},
}

func TestFilterAnswers(t *testing.T) {
	for _, c := range answers {
		for _, arch := range []Arch{AMD64, ARM64} {
			p, err := compile(arch, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if got := run(t, p, arch, uint32(numbers[c.call].of(arch)), c.args...); got != c.want {
				t.Errorf("%s%#x %+v on %s: got %#x, want %#x", c.call, c.args, c.o, arch, got, c.want)
			}
		}
	}
	for nr, want := range map[uint32]uint32{0: allow, 0x40000001: fail(enosys)} {
		p, _ := compile(AMD64, Options{})
		if got := run(t, p, AMD64, nr); got != want {
			t.Errorf("call %#x: got %#x, want %#x", nr, got, want)
		}
		if got := run(t, p, ARM64, nr); got != killProcess {
			t.Errorf("call %#x of another architecture: got %#x, want the end", nr, got)
		}
	}
}

func TestUnknownArchitectureIsAnError(t *testing.T) {
	if _, err := Filter("riscv64", Options{}); err == nil {
		t.Error("got a filter for an architecture without one")
	}
}
