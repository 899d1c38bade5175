import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { deployFolder } from '../paths.ts'

const folder = `${deployFolder}prometheus/`

const filesIn = (name: string) => readdirSync(folder + name).map((file) => `${folder}${name}/${file}`)

/** What promtool finds wrong with the rules, their tests and the config of Prometheus; empty when nothing is. */
export function checkRules(): string[] {
  return [
    ['check', 'rules', ...filesIn('rules')],
    ['check', 'config', '--syntax-only', `${folder}prometheus.yaml`],
    ['test', 'rules', ...filesIn('tests')],
  ].flatMap((args) => {
    const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8', timeout: 60_000 })
    return status === 0 ? [] : [`promtool ${args.slice(0, 2).join(' ')}:\n${stdout}${stderr}`]
  })
}
