import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test, type TestContext } from 'node:test'
import { chaos } from '../../../src/commands/break/chaos.ts'
import { type JournalCheck, verifyJournal } from '../../../src/chaos/journal/verify.ts'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

const DROPPED = 'breakwater_chaos_journal_dropped_total'

after(cleanUp)

/** A small disk, and the parts of a gateway with its journal there. */
interface SmallDisk {
  readonly disk: string
  readonly journal: string
  readonly stateDir: string
  readonly start: () => Promise<Gateway>
}

/** `state`: the state folder, relative to the disk's folder. */
async function onSmallDisk(t: TestContext, state: string, does: (small: SmallDisk) => Promise<void>) {
  const folder = await newFolder()
  const disk = join(folder, 'disk')
  await mkdir(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', disk], { stdio: 'ignore' })
  } catch {
    return t.skip('only root may make a disk that is small')
  }
  try {
    // Leaves little space, so the disk is full soon.
    await writeFile(join(disk, 'filler'), Buffer.alloc((state === 'state' ? 40 : 16) * 1024))
    const server = await FlakyServer.start()
    const journal = join(disk, 'chaos.jsonl')
    const stateDir = join(folder, state)
    const start = () => startGateway(server.url, journal, stateDir)
    await does({ disk, journal, stateDir, start })
  } finally {
    // The gateway may still have the file open.
    execFileSync('umount', ['-l', disk])
  }
}

async function startGateway(url: string, journal: string, stateDir: string): Promise<Gateway> {
  const gateway = await Gateway.start({
    gateway: { environment: 'test', stateDir },
    servers: { flaky: { url, trusted: true } },
    chaos: {
      enabled: true,
      persist: true,
      journal: { file: journal },
      faults: [{ name: 'never', type: 'conn.refused', rate: 0, ttl: '10m', match: { tool: 'read' } }],
    },
  })
  await gateway.waitFor('up', 'flaky')
  return gateway
}

test('a full disk under the journal stops no call; it is said once, counted, and in the journal once there is room', async (t) => {
  await onSmallDisk(t, 'state', async ({ disk, journal, stateDir, start }) => {
    const gateway = await start()
    const client = await RawClient.open(gateway.mcp('flaky'))
    let calls = 0
    let longestMs = 0
    const call = async () => {
      const began = performance.now()
      assert.match(JSON.stringify(await client.say('read')), /read by/)
      longestMs = Math.max(longestMs, performance.now() - began)
      calls++
    }
    // Up to a thousand calls may wait for the disk; in sequence they would take long on a busy machine.
    await until('entries are lost', async () => {
      await Promise.all(Array.from({ length: 50 }, call))
      return ((await gateway.metric(DROPPED)) ?? 0) > 0
    })
    const said = gateway.log.filter(({ msg }) => msg === 'chaos: journal_error')
    assert.equal(said.length, 1)
    assert.match(String(said[0]?.why), /^ENOSPC/)
    t.diagnostic(`${calls} calls at a full disk, all answered; the longest took ${longestMs.toFixed(0)} ms`)

    execFileSync('mount', ['-o', 'remount,size=16m', disk])
    let lost = 0
    // A gap line alone proves nothing: the full disk may refuse its batch.
    await until('the journal has all kept entries, and reports the missing entries', async () => {
      lost = (await gateway.metric(DROPPED)) ?? 0
      const text = await readFile(journal, 'utf8')
      return text.includes('"gap"') && decisionsIn(text) >= calls - lost
    })
    gateway.program.signal('SIGTERM')
    await gateway.program.ended
    const { problems, dropped } = await verifyJournal(journal, stateDir)
    assert.deepEqual([problems, dropped], [[], lost])
  })
})

for (const [where, state, signal] of [
  ['another disk', 'state', 'SIGTERM'],
  ['the same disk', 'disk/state', 'SIGTERM'],
  ['the same disk', 'disk/state', 'SIGKILL'],
] as const)
  test(`a gateway that ends by ${signal} with a full disk leaves a journal that is not whole; its head is on ${where}`, async (t) => {
    await onSmallDisk(t, state, async ({ disk, journal, stateDir, start }) => {
      const gateway = await start()
      const client = await RawClient.open(gateway.mcp('flaky'))
      let calls = 0
      const call = async () => {
        assert.match(JSON.stringify(await client.say('read')), /read by/)
        calls++
      }
      await until('the disk refuses', async () => {
        await Promise.all(Array.from({ length: 50 }, call))
        return gateway.log.some(({ msg }) => msg === 'chaos: journal_error')
      })
      if (signal === 'SIGKILL')
        await until('the head counts the dropped entries', async () => {
          const { dropped } = await verifyJournal(journal, stateDir)
          return dropped > 0
        })
      gateway.program.signal(signal)
      await gateway.program.ended
      const verify = () => verified(journal, stateDir)
      const first = await verify()
      assert.deepEqual([first.code, first.said.ok, first.said.problems], [1, false, []])
      assert.ok(first.said.dropped > 0)
      const missing = calls - decisionsIn(await readFile(journal, 'utf8'))
      if (signal === 'SIGTERM')
        assert.ok(first.said.dropped >= missing, `${first.said.dropped} of ${missing}`)

      execFileSync('mount', ['-o', 'remount,size=16m', disk])
      const next = await start()
      await until(
        'the next process counts the dropped entries',
        async () => (await next.metric(DROPPED)) === first.said.dropped,
      )
      next.program.signal('SIGTERM')
      await next.program.ended
      const second = await verify()
      assert.deepEqual([second.code, second.said.problems, second.said.dropped], [1, [], first.said.dropped])
    })
  })

const decisionsIn = (journal: string) => journal.split('"kind":"decision"').length - 1

async function verified(journal: string, state: string) {
  let text = ''
  const out = { stdout: (line: string) => void (text += line), stderr: () => undefined }
  const code = await chaos(['verify', '--journal', journal, '--state', state, '--json'], out, {})
  return { code, said: JSON.parse(text) as JournalCheck & { ok: boolean } }
}
