package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// kinds are the types of our files. A host's own table of them may say anything.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// asset returns the address of a file under static/, of the first that has it. The address
// changes with the content, so a browser may keep the file.
func asset(name string, from ...fs.FS) string {
	content, err := readStatic(name, from)
	if err != nil {
		return "/ui/static/" + name // which says that it is not there
	}
	sum := sha256.Sum256(content)
	return "/ui/static/" + name + "?v=" + hex.EncodeToString(sum[:6])
}

func readStatic(name string, from []fs.FS) ([]byte, error) {
	err := fs.ErrNotExist
	for _, files := range from {
		var content []byte
		if content, err = fs.ReadFile(files, path.Join("static", name)); err == nil {
			return content, nil
		}
	}
	return nil, err
}

// serveStatic answers with files that are in the program.
func serveStatic(from []fs.FS) func(*Visit) error {
	return func(v *Visit) error {
		name := v.R.PathValue("name")
		content, err := readStatic(name, from)
		if err != nil {
			return &jobs.CodedError{Code: jobs.CodeNotFound, Message: "there is no file " + name}
		}
		v.Header().Set("Cache-Control", "no-cache")
		if v.R.URL.RawQuery != "" {
			v.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		v.Header().Set("Content-Type", kinds[path.Ext(name)])
		http.ServeContent(v, v.R, name, time.Time{}, bytes.NewReader(content))
		return nil
	}
}
