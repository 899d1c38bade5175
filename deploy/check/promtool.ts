import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { deployFolder } from '../paths.ts'

const folder = `${deployFolder}prometheus/`

/** Some tests of rules let days go by: that is seconds of CPU each, and on a busy machine minutes. */
const LIMIT_MS = 300_000

const filesIn = (name: string) => readdirSync(folder + name).map((file) => `${folder}${name}/${file}`)

/** What promtool finds wrong with the rules, their tests and the config of Prometheus; empty when nothing is. */
export async function checkRules(): Promise<string[]> {
  const found = await Promise.all([
    problem('check', 'rules', ...filesIn('rules')),
    problem('check', 'config', '--syntax-only', `${folder}prometheus.yaml`),
    ...filesIn('tests').map((file) => problem('test', 'rules', file)),
  ])
  return found.flat()
}

/** What one command of promtool says when it fails, or does not end. */
function problem(...args: string[]): Promise<string[]> {
  return new Promise((resolve) => {
    execFile('promtool', args, { timeout: LIMIT_MS }, (error, stdout, stderr) => {
      const why = error?.signal === 'SIGTERM' ? `not done after ${LIMIT_MS / 1000} s\n` : ''
      resolve(error === null ? [] : [`promtool ${args.join(' ')}:\n${why}${stdout}${stderr}`])
    })
  })
}
