;; Wants messages whose body has at least 1,024 bytes: what no tag and no SQL92 expression can say.
(module
  (memory (export "memory") 1)
  (global (export "input") i32 (i32.const 0))
  (func (export "matches") (param $properties i32) (param $body i32) (result i32)
    (i32.ge_u (local.get $body) (i32.const 1024))))
