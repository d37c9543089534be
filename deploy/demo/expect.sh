# shellcheck shell=sh
# expect WANT COMMAND [ARGUMENT...] compares what the command prints. A script
# that uses it fails in the end if anything was not as expected. One that ends
# early, since a file is missing or broken, keeps the exit code of that.
failed=0
trap 'code=$?; [ "$code" -ne 0 ] || code=$failed; exit "$code"' EXIT

expect() {
	want=$1
	shift
	got=$("$@" 2>&1)
	if [ "$got" != "$want" ]; then
		echo "FAIL $*: got '$got', want '$want'"
		failed=1
	fi
}
