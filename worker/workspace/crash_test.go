package workspace

import "os"

const crashEnv = "PENSTOCK_TEST_CRASH"

func crashChild() { os.Exit(0) }
