import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { deployFolder } from '../paths.ts'

const folder = `${deployFolder}prometheus/`

/** Some tests of rules simulate days: seconds of CPU each, and minutes on a busy machine. */
const LIMIT_MS = 300_000

const filesIn = (name: string) => readdirSync(folder + name).map((file) => `${folder}${name}/${file}`)

/** Returns promtool's findings on the rules, their tests and the config of Prometheus; empty if none. */
export async function checkRules(): Promise<string[]> {
  const found = await Promise.all([
    problem('check', 'rules', ...filesIn('rules')),
    problem('check', 'config', '--syntax-only', `${folder}prometheus.yaml`),
    ...filesIn('tests').map((file) => problem('test', 'rules', file)),
  ])
  return found.flat()
}

/** Returns the output of a promtool command that fails or hangs; empty on success. */
function problem(...args: string[]): Promise<string[]> {
  return new Promise((resolve) => {
    execFile('promtool', args, { timeout: LIMIT_MS }, (error, stdout, stderr) => {
      const why = error?.signal === 'SIGTERM' ? `not done after ${LIMIT_MS / 1000} s\n` : ''
      resolve(error === null ? [] : [`promtool ${args.join(' ')}:\n${why}${stdout}${stderr}`])
    })
  })
}
