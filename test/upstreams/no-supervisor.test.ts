import assert from 'node:assert/strict'
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
