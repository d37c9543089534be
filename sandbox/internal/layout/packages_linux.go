package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
)

// installed are the files in which package managers keep what is in /usr: of Debian and its
// kin, of RPM at either of its places, and of Alpine.
var installed = []string{
	"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/lib/apk/db/installed",
}

// digests are those of lists of packages: one has some megabytes, and a jail starts in ten
// milliseconds.
var digests = memory[Digest]{of: digest}

func digest(path string) (Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return Digest{}, err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return Digest{path, hex.EncodeToString(sum.Sum(nil))}, err
}
