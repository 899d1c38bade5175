import { execFile } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** Returns `nginx/1.22.1`, or undefined if PATH has no nginx. */
export async function nginxVersion(): Promise<string | undefined> {
  const said = await promisify(execFile)('nginx', ['-v']).catch(() => undefined)
  return said === undefined ? undefined : /nginx\/[\d.]+/.exec(said.stderr)?.[0]
}

/** Writes an unbuffered proxy config for one nginx process. Returns the arguments to start nginx. */
export function nginxArgs(port: number, upstream: string, scratch: string): string[] {
  const folder = join(scratch, `nginx-${port}`)
  mkdirSync(folder, { recursive: true })
  const file = join(folder, 'nginx.conf')
  writeFileSync(file, config(port, new URL(upstream).host, folder))
  return ['-p', folder, '-e', 'stderr', '-c', file]
}

const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

function config(port: number, upstream: string, folder: string): string {
  return `
daemon off;
master_process off;
worker_processes 1;
pid ${folder}/pid;
events { worker_connections 8192; }
http {
  access_log off;
  ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join('\n  ')}
  keepalive_requests 1000000000;
  keepalive_timeout 120s;
  client_max_body_size 8m;
  upstream far { server ${upstream}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 120s; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://far;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }
}
`
}
