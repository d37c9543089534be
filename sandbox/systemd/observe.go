package systemd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// script tells what it sees, a fact a line, and waits to be dismissed. It uses
// what every system has in /usr/bin.
const script = `
for n in pid net ipc user mnt uts cgroup; do echo "ns-$n $(readlink /proc/self/ns/$n)"; done
while read -r k v; do case $k in Uid:|CapPrm:|CapEff:|NoNewPrivs:) echo "$k $v";; esac; done < /proc/self/status
while read -r l; do case $l in "Max file size"*|"Max open files"*) echo "$l";; esac; done < /proc/self/limits
set -- /proc/[0-9]*; echo "processes $#"
while read -r i r; do case $i in *:) echo "interface $i";; esac; done < /proc/net/dev
for p in /etc/shadow /etc/machine-id /root /run/* /sys /boot /var/lib /given /new /lost+found; do
	if [ -e "$p" ]; then echo "sees $p"; fi
done
for d in / /usr /etc /usr/bin /dev /jail; do
	if (: > $d/.penstock) 2>/dev/null; then echo "writes $d"; fi
done
for d in /workspace /home/agent /tmp /dev/shm; do
	if (: > $d/.penstock) 2>/dev/null; then rm $d/.penstock; else echo "cannot-write $d"; fi
done
if (head -c 2097152 /dev/zero > /tmp/big) 2>/dev/null; then echo "fills /tmp"; fi
rm -f /tmp/big; : > /tmp/s; if chmod 4755 /tmp/s 2>/dev/null; then echo "set-uid /tmp/s"; fi
echo "end of report"
read -r dismissed || exit 0
`

// An observation holds the facts: each word, and what was said with it.
type observation map[string][]string

func observe(r io.Reader) (observation, error) {
	seen := observation{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "end of report" {
			return seen, nil
		}
		for _, long := range []string{"Max file size", "Max open files"} {
			if rest, ok := strings.CutPrefix(line, long); ok {
				line = strings.ReplaceAll(long, " ", "-") + rest
			}
		}
		f := strings.Fields(line)
		if len(f) > 1 {
			seen[f[0]] = append(seen[f[0]], f[1:]...)
		}
	}
	return nil, errors.Join(fmt.Errorf("the program that looks around ended after %d facts", len(seen)), lines.Err())
}

func (o observation) first(word string) string {
	if v := o[word]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// fallen lists the walls that do not stand.
func (o observation) fallen() []string {
	var down []string
	add := func(fallen bool, format string, args ...any) {
		if fallen {
			down = append(down, fmt.Sprintf(format, args...))
		}
	}
	for _, n := range []string{"pid", "net", "ipc", "user", "mnt", "uts"} {
		own, err := os.Readlink("/proc/self/ns/" + n)
		inside := o.first("ns-" + n)
		add(err != nil || inside == "" || inside == own, "it has no %s namespace of its own", n)
	}
	processes, err := strconv.Atoi(o.first("processes"))
	add(err != nil || processes < 1 || processes > 8, "it sees %s processes", o.first("processes"))
	for _, i := range o["interface"] {
		add(i != "lo:", "it has the network interface %s", strings.TrimSuffix(i, ":"))
	}
	add(len(o["interface"]) == 0, "it has no loopback")
	for word, format := range map[string]string{
		"sees": "it sees %s", "writes": "it can write to %s", "cannot-write": "it cannot write to %s",
		"fills": "it can fill %s beyond its size", "set-uid": "it can make a set-uid file at %s",
	} {
		for _, what := range o[word] {
			add(true, format, what)
		}
	}
	add(o.first("Uid:") != "1000", "it is the user %s", o.first("Uid:"))
	for _, c := range []string{"CapPrm:", "CapEff:"} {
		add(strings.Trim(o.first(c), "0") != "" || o.first(c) == "", "it has capabilities")
	}
	add(o.first("NoNewPrivs:") != "1", "it can gain privileges")
	return down
}

// limits lists those that a process has for itself.
func (o observation) limits() []sandbox.Feature {
	var f []sandbox.Feature
	if o.first("Max-file-size") == strconv.FormatInt(tried.FileSize, 10) {
		f = append(f, sandbox.FeatureFileSize)
	}
	if o.first("Max-open-files") == strconv.Itoa(tried.OpenFiles) {
		f = append(f, sandbox.FeatureOpenFiles)
	}
	return f
}
