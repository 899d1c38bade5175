import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { verifyJournal } from '../../../src/chaos/journal/verify.ts'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

const DROPPED = 'breakwater_chaos_journal_dropped_total'

after(cleanUp)

test('a full disk under the journal stops no call; it is said once, counted, and in the journal once there is room', async (t) => {
  const folder = await newFolder()
  const disk = join(folder, 'disk')
  await mkdir(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', disk], { stdio: 'ignore' })
  } catch {
    return t.skip('only root may make a disk that is small')
  }
  try {
    // So that it is full soon.
    await writeFile(join(disk, 'filler'), Buffer.alloc(40 * 1024))
    const server = await FlakyServer.start()
    const journal = join(disk, 'chaos.jsonl')
    const stateDir = join(folder, 'state')
    const gateway = await Gateway.start({
      gateway: { environment: 'test', stateDir },
      servers: { flaky: { url: server.url, trusted: true } },
      chaos: {
        enabled: true,
        persist: true,
        journal: { file: journal },
        faults: [{ name: 'never', type: 'conn.refused', rate: 0, ttl: '10m', match: { tool: 'read' } }],
      },
    })
    await gateway.waitFor('up', 'flaky')
    const client = await RawClient.open(gateway.mcp('flaky'))
    let calls = 0
    let longestMs = 0
    const call = async () => {
      const began = performance.now()
      assert.match(JSON.stringify(await client.say('read')), /read by/)
      longestMs = Math.max(longestMs, performance.now() - began)
      calls++
    }
    // A thousand may wait for the disk: one after another they would take long on a busy machine.
    await until('entries are lost', async () => {
      await Promise.all(Array.from({ length: 50 }, call))
      return ((await gateway.metric(DROPPED)) ?? 0) > 0
    })
    const said = gateway.log.filter(({ msg }) => msg === 'chaos: journal_error')
    assert.equal(said.length, 1)
    assert.match(String(said[0]?.why), /^ENOSPC/)
    t.diagnostic(`${calls} calls at a full disk, all answered; the longest took ${longestMs.toFixed(0)} ms`)

    execFileSync('mount', ['-o', 'remount,size=16m', disk])
    await until('the journal says what is missing', async () =>
      (await readFile(journal, 'utf8')).includes('"gap"'),
    )
    const lost = await gateway.metric(DROPPED)
    gateway.program.signal('SIGTERM')
    await gateway.program.ended
    const { problems, dropped } = await verifyJournal(journal, stateDir)
    assert.deepEqual([problems, dropped], [[], lost])
  } finally {
    // The gateway may still have it open.
    execFileSync('umount', ['-l', disk])
  }
})
