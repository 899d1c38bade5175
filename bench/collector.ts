/** A collector of spans (OTLP over HTTP) that accepts and discards everything. */
import { createServer } from 'node:http'
import { serve } from './serve.ts'

const headers = { 'content-type': 'application/x-protobuf', 'content-length': 0 }

serve(
  createServer((request, response) => {
    request.resume().once('end', () => response.writeHead(200, headers).end())
  }),
)
