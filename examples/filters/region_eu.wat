;; Wants messages whose property `region` is `EU`.
;;
;; The properties lie at `input`: name 0x01 value 0x02 name 0x01 value 0x02 ... The module looks for the bytes
;; of `region`, 0x01, `EU`, 0x02 at the beginning of a pair.
(module
  (memory (export "memory") 1)
  (global (export "input") i32 (i32.const 1024))
  (global $input i32 (i32.const 1024))
  (data (i32.const 0) "region\01EU\02")
  (global $size i32 (i32.const 10))

  (func $is_here (param $at i32) (result i32)
    (local $i i32)
    (loop $next
      (if (i32.ne (i32.load8_u (local.get $i)) (i32.load8_u (i32.add (local.get $at) (local.get $i))))
        (then (return (i32.const 0))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (global.get $size))))
    (i32.const 1))

  (func (export "matches") (param $properties i32) (param $body i32) (result i32)
    (local $at i32) (local $end i32) (local $begins i32)
    (local.set $at (global.get $input))
    (local.set $end (i32.add (global.get $input) (local.get $properties)))
    (local.set $begins (i32.const 1))
    (block $nowhere
      (loop $next
        (br_if $nowhere (i32.gt_u (i32.add (local.get $at) (global.get $size)) (local.get $end)))
        (if (i32.and (local.get $begins) (call $is_here (local.get $at)))
          (then (return (i32.const 1))))
        (local.set $begins (i32.eq (i32.load8_u (local.get $at)) (i32.const 2)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (i32.const 0)))
