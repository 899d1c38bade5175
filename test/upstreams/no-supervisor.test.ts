import assert from 'node:assert/strict'
import { ChildProcess } from 'node:child_process'
import { test } from 'node:test'
import { recordedLog } from '../support/log.ts'
import { open, pidOf, stdioUpstream } from '../support/stdio.ts'
import { until } from '../support/until.ts'

test('where the supervisor cannot be started, servers run without it, and the log says what that means', async (t) => {
  const { execPath } = process
  t.after(() => (process.execPath = execPath))
  const { log, lines } = recordedLog()
  const upstream = stdioUpstream(t, { log })
  process.execPath = '/nowhere/node'
  assert.ok(await pidOf(await open(upstream)))
  await until('the log tells', () => lines.length > 0)
  assert.match(String(lines[0]?.msg), /^the supervisor cannot be started .*: servers may outlive the gateway/)
})

for (const [how, spawn] of [
  // Node's behaviour without file descriptors: there is neither a process nor a pipe.
  [
    'EMFILE',
    function (this: ChildProcess) {
      process.nextTick(() => this.emit('error', new Error('spawn EMFILE')))
      return -24
    },
  ],
  [
    'ENOMEM',
    () => {
      throw new Error('spawn ENOMEM')
    },
  ],
] as const)
  test(`a supervisor that meets ${how} keeps no server from its start`, async (t) => {
    const { log, lines } = recordedLog()
    const upstream = stdioUpstream(t, { log })
    t.mock.method(ChildProcess.prototype as unknown as { spawn(): number }, 'spawn', spawn, { times: 1 })
    assert.ok(await pidOf(await open(upstream)))
    await until('the log tells', () => lines.length > 0)
    assert.match(String(lines[0]?.msg), new RegExp(`^the supervisor cannot be started \\(spawn ${how}\\)`))
  })
