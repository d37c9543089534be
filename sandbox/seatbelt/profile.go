package seatbelt

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// system is what every program needs. The names are Apple's; what they do is
// found in the profiles below /System/Library/Sandbox/Profiles.
const system = `(version 1)
(deny default)
(allow process-fork)
(allow signal process-info* (target same-sandbox))
(allow user-preference-read)
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name "kern.argmax" "kern.bootargs" "kern.hostname" "kern.hv_vmm_present" "kern.iossupportversion"
    "kern.maxfilesperproc" "kern.maxproc" "kern.ngroups" "kern.osproductversion" "kern.osrelease" "kern.ostype"
    "kern.osvariant_status" "kern.osversion" "kern.secure_kernel" "kern.tcsm_available" "kern.usrstack64" "kern.version"
    "machdep.cpu.brand_string" "sysctl.name2oid" "sysctl.oidfmt" "vm.loadavg"))
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.cfprefsd.agent")
  (global-name "com.apple.cfprefsd.daemon"))
(allow ipc-posix-shm-read* (ipc-posix-name-prefix "apple.cfprefs."))
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))
(allow file-read-metadata (vnode-type DIRECTORY) (vnode-type SYMLINK))
(allow file-read* process-exec file-map-executable
  (subpath "/usr") (subpath "/bin") (subpath "/sbin") (subpath "/System") (subpath "/opt/homebrew")
  (subpath "/Library/Apple") (subpath "/Library/Developer") (subpath "/Library/Frameworks"))
(allow file-read* (literal "/")
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom") (subpath "/dev/fd")
  (literal "/private/etc/group") (literal "/private/etc/hosts") (literal "/private/etc/localtime")
  (literal "/private/etc/passwd") (literal "/private/etc/protocols") (literal "/private/etc/services")
  (literal "/private/etc/shells") (subpath "/private/etc/ssl")
  (subpath "/private/var/db/dyld") (subpath "/private/var/db/timezone") (subpath "/private/var/select")
  (literal "/private/var/db/xcode_select_link"))
(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))
`

// fullNetwork is what names and certificates need, besides the network.
const fullNetwork = `(allow network*)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.dnssd.service"))
(allow file-read* (literal "/private/var/run/resolv.conf"))
`

// trust lets programs ask the system whether it trusts a certificate; those
// in Go cannot do without. The service itself has a network, so that a jail
// without one does not get it.
const trust = `(allow mach-lookup (global-name "com.apple.trustd.agent"))
`

// profile is the text for a Spec and a number of places.
func profile(spec sandbox.Spec, named []hostPath) string {
	var b strings.Builder
	b.WriteString(system)
	whole := func(param string, writable bool) {
		at := `(subpath (param "` + param + `"))`
		b.WriteString("(allow file-read* process-exec file-map-executable " + at + ")\n")
		if writable {
			b.WriteString("(allow file-write* file-link " + at + ")\n")
			// Sockets have paths, and belong to the programs that may write there.
			b.WriteString("(allow network-bind network-inbound (local unix-socket " + at + "))\n")
			b.WriteString("(allow network-outbound (remote unix-socket " + at + "))\n")
			return
		}
		// The last rule that matches decides: a parent may be writable.
		b.WriteString("(deny file-write* file-link " + at + ")\n")
		b.WriteString("(deny network-outbound (remote unix-socket " + at + "))\n")
	}
	b.WriteString("(allow system-socket (socket-domain AF_UNIX))\n")
	if spec.Network == sandbox.NetworkFull {
		b.WriteString(fullNetwork) // before the places, whose denials of sockets come after
	}
	whole("PRIVATE", true)
	for i, n := range named {
		whole(parameter(i), n.writable)
	}
	switch spec.Network {
	case sandbox.NetworkGate:
		b.WriteString(trust)
		for _, l := range spec.Listen {
			// What is remote to the jail. A rule for the local end would let
			// every connection through that begins on this host: all of them.
			b.WriteString(`(allow network-outbound (remote ip "localhost:` + port(l) + `"))` + "\n")
		}
	case sandbox.NetworkFull:
		b.WriteString(trust)
	}
	// Whatever was allowed above: a program that sends events to other programs of
	// the desktop has left the jail.
	b.WriteString("(deny appleevent-send)\n(deny mach-register)\n(deny lsopen)\n")
	return b.String()
}

func port(listen string) string {
	ap, err := netip.ParseAddrPort(listen)
	if err != nil {
		return "0" // refused before; no connection goes there
	}
	return strconv.Itoa(int(ap.Port()))
}
