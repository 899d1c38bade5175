import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { mkdir, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, configText, newFolder } from '../e2e/support/gateway.ts'
import { Program } from '../e2e/support/program.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'
import { main } from '../support/main.ts'

after(cleanUp)

test('a gateway whose log and recording are on a full disk serves calls, and writes again once there is room', async (t) => {
  const folder = await newFolder()
  const disk = join(folder, 'disk')
  await mkdir(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', disk], { stdio: 'ignore' })
  } catch {
    return t.skip('only root may make a disk that is small')
  }
  try {
    const file = join(folder, 'gateway.yaml')
    const logFile = join(disk, 'log')
    const telemetry = { accessLog: { sample: 1 }, recording: { file: join(disk, 'calls.jsonl') } }
    await writeFile(file, configText({ servers: { local: stdioToolbox() }, telemetry }))
    const output = openSync(logFile, 'a')
    const program = new Program([main, 'start', '--config', file], {
      stdio: ['ignore', output, output],
      env: { XDG_RUNTIME_DIR: folder },
    })
    closeSync(output)
    const logged = () => readFileSync(logFile, 'utf8')
    let data: string | undefined
    await until('the gateway listens', () => {
      data = /"data":"(http:[^"]+)"/.exec(logged())?.[1]
      return data !== undefined
    })
    const client = await RawClient.open(`${data}/mcp/local`)
    const call = async () => assert.equal(await client.say('echo', { text: 'here' }), 'here')
    // Each call writes a line of some hundred bytes to both files: together several times the size of the disk. Up to 1
    // MiB of lines wait; the rest are lost.
    for (let calls = 0; calls < 4_000; calls++) await call()
    const size = logged().length
    await call()
    assert.equal(logged().length, size, 'the disk is full')
    assert.ok(program.isRunning)

    await truncate(logFile)
    execFileSync('mount', ['-o', 'remount,size=16m', disk])
    await until('the log continues, and reports its lost lines', async () => {
      await call()
      return logged().includes('the log could not be written')
    })
    // The waiting lines arrive too, and every line is whole.
    for (const line of logged().trimEnd().split('\n').slice(1)) JSON.parse(line)
    program.signal('SIGTERM')
    assert.deepEqual(await program.ended, { code: 0, signal: null })
  } finally {
    // The gateway may still have the file open.
    execFileSync('umount', ['-l', disk])
  }
})
