# Posts with the standard library: two requests over one connection (http.client), or one alone (urllib). Prints a JSON list.
import http.client, json, sys, urllib.error, urllib.request

job = json.loads(sys.argv[1])


def body():
    return b"".join(pieces())


def pieces():
    yield job["start"].encode()
    for at in range(0, job["bytes"], 65536):
        yield b"x" * min(65536, job["bytes"] - at)


def over_one_connection():
    connection = http.client.HTTPConnection("127.0.0.1", job["port"], timeout=30)
    answers = []
    for _ in range(2):
        if job["chunked"]:
            connection.request("POST", job["path"], body=pieces(), encode_chunked=True,
                               headers={"Transfer-Encoding": "chunked"})
        else:
            connection.request("POST", job["path"], body=body())
        response = connection.getresponse()
        answers.append([response.status, response.read().decode()])
    connection.close()
    return answers


def alone():
    url = "http://127.0.0.1:%d%s" % (job["port"], job["path"])
    request = urllib.request.Request(url, data=pieces() if job["chunked"] else body(), method="POST")
    if job["chunked"]:
        request.add_header("Transfer-Encoding", "chunked")
    try:
        response = urllib.request.urlopen(request, timeout=30)
        return [[response.status, response.read().decode()]]
    except urllib.error.HTTPError as error:
        return [[error.code, error.read().decode()]]


print(json.dumps(alone() if job["alone"] else over_one_connection()))
